// Chats as JSON files: written and read here, and plain message lists of other
// programs are read too. Files are outside input: everything is checked.

import { newId } from '../lib/id';
import type { ChatWithMessages } from './database';
import type { Answer, AnswerState, Chat, Draft, Message, Params, Stats } from './types';
import { picked } from './types';

export const maxFileBytes = 64 * 1024 * 1024;
const maxMessages = 100_000;
const format = 'tandem-chats';

interface File {
  format: typeof format;
  version: 1;
  chats: FileChat[];
}

type FileChat = Pick<Chat, 'title' | 'created' | 'updated' | 'model' | 'params'> & { messages: FileMessage[] };
type FileMessage = { role: 'user'; content: string } | ({ role: 'assistant'; content: string; reasoning_content?: string } & Partial<Pick<Answer, 'state' | 'model' | 'stats' | 'finish'>>);

/** exportChats writes each chat with the answers in use. */
export function exportChats(chats: { chat: Chat; messages: Message[] }[]): string {
  const file: File = { format, version: 1, chats: chats.map(({ chat, messages }) => ({ ...header(chat), messages: messages.map(fileMessage) })) };
  return JSON.stringify(file, null, 1);
}

function header({ title, created, updated, model, params }: Chat): Omit<FileChat, 'messages'> {
  return { title, created, updated, model, params };
}

function fileMessage(message: Message): FileMessage {
  if (message.role === 'user') return { role: 'user', content: message.text };
  const { text, reasoning, state, model, stats, finish } = picked(message);
  return { role: 'assistant', content: text, ...(reasoning ? { reasoning_content: reasoning } : {}), state, model, finish, stats };
}

/**
 * importChats reads a file of exportChats, or a chat as {"messages": [...]} or
 * [...] with OpenAI's roles and contents. Everything gets new ids, so that the
 * same file can be read twice. It throws with what is wrong, and where.
 */
export function importChats(json: string, now: number): ChatWithMessages[] {
  const value = parse(json);
  const chats = Array.isArray(value) ? [{ messages: value }] : Array.isArray(value.chats) ? value.chats : [value];
  if (value.format === format && value.version !== 1) throw new Error(`This file has version ${String(value.version)}; version 1 can be read.`);
  if (chats.length === 0) throw new Error('This file holds no chat.');
  return chats.map((chat, i) => readChat(chat, `chat ${i + 1}`, now));
}

type Fields = Record<string, unknown>;

function parse(json: string): Fields {
  let value: unknown;
  try {
    value = JSON.parse(json);
  } catch {
    throw new Error('This file is not JSON.');
  }
  if (typeof value !== 'object' || value === null) throw new Error('This file holds no chat.');
  return value as Fields;
}

function readChat(value: unknown, where: string, now: number): ChatWithMessages {
  const fields = asObject(value);
  if (!Array.isArray(fields.messages)) throw new Error(`In ${where}, "messages" is missing.`);
  if (fields.messages.length > maxMessages) throw new Error(`In ${where} there are ${fields.messages.length} messages; ${maxMessages} can be read.`);
  const params = readParams(asObject(fields.params));
  const messages: Draft[] = [];
  fields.messages.forEach((message, i) => {
    const draft = readMessage(asObject(message), `message ${i + 1} of ${where}`, params);
    if (draft !== null) messages.push(draft);
  });
  const first = messages.find((message) => message.role === 'user');
  const title = text(fields.title) ?? titleOf(first?.role === 'user' ? first.text : 'Imported chat');
  const chat: Chat = { id: newId(), title: title.slice(0, 200), created: time(fields.created, now), updated: time(fields.updated, now), model: text(fields.model) ?? '', params };
  return { chat, messages };
}

function readMessage(fields: Fields, where: string, params: Params): Draft | null {
  const content = readContent(fields.content, where);
  switch (fields.role) {
    case 'system':
    case 'developer':
      params.system ??= content;
      return null;
    case 'user':
      return { id: newId(), role: 'user', text: content };
    case 'assistant':
      return { id: newId(), role: 'assistant', pick: 0, answers: [readAnswer(fields, content)] };
    default:
      throw new Error(`In ${where}, "role" is ${JSON.stringify(fields.role)}; system, user and assistant can be read.`);
  }
}

function readContent(content: unknown, where: string): string {
  if (typeof content === 'string') return content;
  if (content === null || content === undefined) return '';
  if (Array.isArray(content)) return content.map((part) => text(asObject(part).text) ?? '').join('');
  throw new Error(`In ${where}, "content" is not text.`);
}

function readAnswer(fields: Fields, content: string): Answer {
  const states: unknown[] = ['done', 'stopped', 'failed', 'interrupted'] satisfies AnswerState[];
  const state = states.includes(fields.state) ? (fields.state as AnswerState) : fields.state === 'streaming' ? 'interrupted' : 'done';
  return {
    text: content,
    reasoning: text(fields.reasoning_content) ?? '',
    state,
    model: text(fields.model) ?? '',
    finish: text(fields.finish),
    stats: readStats(fields.stats),
    ...(state === 'failed' ? { failure: { status: 0, message: 'This answer had failed before it was exported.' } } : {}),
  };
}

function readParams(fields: Fields): Params {
  const params: Params = {};
  const system = text(fields.system);
  if (system !== undefined) params.system = system;
  for (const name of ['temperature', 'top_p', 'max_tokens', 'seed'] as const) {
    const value = finite(fields[name]);
    if (value !== undefined) params[name] = value;
  }
  return params;
}

function readStats(value: unknown): Stats | undefined {
  const fields = asObject(value);
  const totalMs = finite(fields.totalMs);
  if (totalMs === undefined) return undefined;
  const stats: Stats = { totalMs };
  for (const name of ['firstMs', 'decodeMs', 'reasoningMs', 'promptTokens', 'cachedTokens', 'completionTokens', 'maxTokens'] as const) stats[name] = finite(fields[name]);
  for (const name of ['node', 'prefill', 'reason', 'warning'] as const) stats[name] = text(fields[name]);
  return stats;
}

/** titleOf makes a chat's name of its first message. */
export function titleOf(message: string): string {
  const line = message.trim().split('\n', 1)[0]?.trim() ?? '';
  return line.length <= 60 ? line || 'New chat' : `${line.slice(0, 59).trimEnd()}…`;
}

function asObject(value: unknown): Fields {
  return typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as Fields) : {};
}

function text(value: unknown): string | undefined {
  return typeof value === 'string' && value !== '' ? value : undefined;
}

function finite(value: unknown): number | undefined {
  return typeof value === 'number' && Number.isFinite(value) ? value : undefined;
}

function time(value: unknown, now: number): number {
  return finite(value) ?? now;
}
