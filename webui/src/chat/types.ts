import type { Failure } from '../lib/api';

/** What a chat sends along with its messages; undefined leaves it to the model. */
export interface Params {
  system?: string;
  temperature?: number;
  top_p?: number;
  max_tokens?: number;
  seed?: number;
}

export interface Chat {
  id: string;
  title: string;
  created: number; // ms since 1970, like all times here
  updated: number;
  model: string;
  params: Params;
}

/**
 * done: the model ended. stopped: a person ended it. failed: see failure.
 * interrupted: the page that received it was closed. All keep their text.
 */
export type AnswerState = 'streaming' | 'done' | 'stopped' | 'failed' | 'interrupted';

export interface Answer {
  text: string;
  reasoning: string;
  state: AnswerState;
  model: string;
  finish?: string; // finish_reason
  failure?: Failure;
  stats?: Stats;
}

/** Stats is what one answer cost; tokens as the node counted them, times as this page saw them. */
export interface Stats {
  firstMs?: number; // from sending to the first piece
  decodeMs?: number; // from the first to the last piece
  totalMs: number;
  reasoningMs?: number;
  promptTokens?: number;
  cachedTokens?: number;
  completionTokens?: number;
  pieces?: number; // received; about one per token
  maxTokens?: number; // the limit that was asked for
  node?: string;
  prefill?: string;
  reason?: string;
  warning?: string;
}

export interface UserMessage {
  id: string;
  chatId: string;
  n: number; // order in the chat
  role: 'user';
  text: string;
}

/** One turn of the model: all answers that were generated for it, at least one, and the one in use. */
export interface AssistantMessage {
  id: string;
  chatId: string;
  n: number;
  role: 'assistant';
  answers: Answer[];
  pick: number;
}

export type Message = UserMessage | AssistantMessage;

/** Draft is a message that has no place in a chat yet. */
export type Draft = Omit<UserMessage, 'n' | 'chatId'> | Omit<AssistantMessage, 'n' | 'chatId'>;

export function picked(message: AssistantMessage): Answer {
  const answer = message.answers[message.pick] ?? message.answers.at(-1);
  if (answer === undefined) throw new Error(`message ${message.id} has no answer`);
  return answer;
}

export function withPicked(message: AssistantMessage, answer: Answer): AssistantMessage {
  return { ...message, answers: message.answers.map((old, i) => (i === message.pick ? answer : old)) };
}

/** isOpen says whether some tab receives, or received when it was closed, an answer of the message. */
export function isOpen(message: Message): boolean {
  return message.role === 'assistant' && message.answers.some((answer) => answer.state === 'streaming');
}

export function interrupted(message: Message): Message {
  if (message.role === 'user') return message;
  return { ...message, answers: message.answers.map((answer) => (answer.state === 'streaming' ? { ...answer, state: 'interrupted' } : answer)) };
}
