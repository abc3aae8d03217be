// The chats of this tab: what is shown, what runs, and when it is written down.

import { signal, type Signal } from '@preact/signals';
import { toFailure } from '../lib/api';
import { newId } from '../lib/id';
import { read, write } from '../lib/settings';
import { complete, type Turn } from './complete';
import { Database, place, type ChatWithMessages } from './database';
import { LiveAnswer } from './live';
import { Tabs } from './tabs';
import { titleOf } from './transfer';
import { isOpen, picked, withPicked, type Answer, type AssistantMessage, type Chat, type Draft, type Message, type Params, type UserMessage } from './types';

/** How often a running answer is written to the database at most. */
const saveMilliseconds = 400;
/** How often a tab looks whether the tab that receives an answer still lives. */
const watchMilliseconds = 3000;

const continuePrompt = 'Continue your last answer exactly where it stopped. Do not repeat anything that is already there and do not comment on this request.';

/** ChatState is one chat in this tab. The same object serves it until the page is closed. */
export class ChatState {
  readonly chat: Signal<Chat>;
  readonly messages = signal<Message[]>([]);
  /** The answer that this tab receives. */
  readonly live = signal<LiveAnswer | null>(null);
  /** Another tab receives an answer of this chat. */
  readonly elsewhere = signal(false);
  /** A chat is written down with its first message. */
  saved: boolean;

  constructor(chat: Chat, saved: boolean) {
    this.chat = signal(chat);
    this.saved = saved;
  }

  get id(): string {
    return this.chat.value.id;
  }

  get busy(): boolean {
    return this.live.value !== null || this.elsewhere.value;
  }

  last(): Message | undefined {
    return this.messages.value.at(-1);
  }

  replace(message: Message): void {
    this.messages.value = this.messages.value.map((old) => (old.id === message.id ? message : old));
  }
}

/**
 * Chats owns all ChatStates of the tab. If the browser keeps no database, chats
 * live as long as the page and notKept says why.
 */
export class Chats {
  /** Every chat that was written down, the latest first. */
  readonly list = signal<Chat[]>([]);
  readonly running = signal<ReadonlySet<string>>(new Set());
  readonly notKept = signal<string | null>(null);
  private readonly states = new Map<string, ChatState>();
  /** Messages whose answer this tab receives, until its end is written down. */
  private readonly owned = new Set<string>();
  /** Messages whose answer another tab seems to receive. */
  private readonly watched = new Set<string>();
  private readonly tabs: Tabs;
  private db: Database | null = null;

  constructor(private readonly name = 'tandem') {
    this.tabs = new Tabs(
      {
        chatChanged: (id) => void this.reload(id),
        listChanged: () => void this.readList(),
        owns: (messageId) => this.owned.has(messageId),
      },
      name,
    );
  }

  async start(): Promise<void> {
    try {
      this.db = await Database.open(this.name);
      await this.takeRescued();
      await this.readList();
    } catch (err) {
      this.notKept.value = reasonOf(err);
    }
  }

  /** close leaves the database as it is, as a closed tab does, and ends what runs. */
  close(): void {
    this.tabs.close();
    this.db?.close();
    this.db = null;
    for (const state of this.states.values()) state.live.value?.controller.abort();
  }

  /** fresh is a new chat, not written down yet. */
  fresh(): ChatState {
    const now = Date.now();
    const chat = { id: newId(), title: 'New chat', created: now, updated: now, model: read('model') ?? '', params: {} };
    const state = new ChatState(chat, false);
    this.states.set(chat.id, state);
    return state;
  }

  /** open reads a chat, or returns null if there is none of this id. */
  async open(id: string): Promise<ChatState | null> {
    const known = this.states.get(id);
    if (known) return known;
    const chat = await this.attempt((db) => db.chat(id));
    if (!chat) return null;
    const state = this.states.get(id) ?? new ChatState(chat, true);
    this.states.set(id, state);
    await this.reload(id);
    return state;
  }

  async messages(id: string): Promise<Message[]> {
    return (await this.attempt((db) => db.messages(id))) ?? this.states.get(id)?.messages.value ?? [];
  }

  // Sending. An answer is live from the first moment: the chat is busy, and
  // other tabs that see its record are told that it is being received here.

  async send(state: ChatState, text: string): Promise<void> {
    if (state.busy) return;
    const draft = answerDraft(state.chat.value.model);
    const live = this.begin(state, draft.id, draft.answers[0]);
    if (!state.saved) await this.keep(state, titleOf(text));
    await this.append(state, [{ id: newId(), role: 'user', text }, draft]);
    await this.run(state, live);
  }

  /** again generates another answer in place of the last one, which is kept unless it is empty. */
  async again(state: ChatState): Promise<void> {
    const message = state.last();
    if (state.busy || message?.role !== 'assistant') return;
    const answer = emptyAnswer(state.chat.value.model);
    const live = this.begin(state, message.id, answer);
    const old = message.answers.filter((answer) => answer.text !== '' || answer.reasoning !== '');
    await this.write(state, { ...message, answers: [...old, answer], pick: old.length });
    await this.run(state, live);
  }

  /** goOn lets the model continue the last answer behind the text that is there. */
  async goOn(state: ChatState): Promise<void> {
    const message = state.last();
    if (state.busy || message?.role !== 'assistant') return;
    const base = picked(message);
    if (base.text === '') return this.again(state);
    await this.run(state, this.begin(state, message.id, { ...base, model: state.chat.value.model }));
  }

  /** edit changes the last question and answers it anew. */
  async edit(state: ChatState, message: UserMessage, text: string): Promise<void> {
    if (state.busy) return;
    const draft = answerDraft(state.chat.value.model);
    const live = this.begin(state, draft.id, draft.answers[0]);
    await this.write(state, { ...message, text });
    state.messages.value = state.messages.value.filter((other) => other.n <= message.n);
    await this.attempt((db) => db.removeFrom(state.id, message.n + 1));
    await this.append(state, [draft]);
    await this.run(state, live);
  }

  stop(state: ChatState): void {
    state.live.value?.controller.abort();
  }

  async pick(state: ChatState, message: AssistantMessage, pick: number): Promise<void> {
    if (!state.busy) await this.write(state, { ...message, pick });
  }

  private begin(state: ChatState, messageId: string, base: Answer): LiveAnswer {
    const live: LiveAnswer = new LiveAnswer(messageId, base, throttle(saveMilliseconds, () => void this.saveProgress(state, live)));
    state.live.value = live;
    this.owned.add(messageId);
    this.mark(state.id, true);
    return live;
  }

  private async run(state: ChatState, live: LiveAnswer): Promise<void> {
    const { model, params } = state.chat.value;
    const answer = await this.receive(live, { model, params, turns: turnsFor(state.messages.value, live.base) });
    await this.settle(state, live, answer);
  }

  private async receive(live: LiveAnswer, request: { model: string; params: Params; turns: Turn[] }): Promise<Answer> {
    const maxTokens = request.params.max_tokens;
    try {
      const end = await complete(request, live.controller.signal, live);
      return live.answer('done', { ...end, maxTokens });
    } catch (err) {
      if (live.controller.signal.aborted) return live.answer('stopped');
      return live.answer('failed', { failure: toFailure(err) });
    }
  }

  private async settle(state: ChatState, live: LiveAnswer, answer: Answer): Promise<void> {
    const message = currentMessage(state, live);
    if (message) state.replace(withPicked(message, answer));
    state.live.value = null;
    this.mark(state.id, false);
    if (message) await this.write(state, withPicked(message, answer));
    this.owned.delete(live.messageId);
    await this.change(state, { updated: Date.now() });
  }

  private async saveProgress(state: ChatState, live: LiveAnswer): Promise<void> {
    const message = currentMessage(state, live);
    if (!message || state.live.value !== live) return;
    const kept = await this.attempt((db) => db.update(withPicked(message, live.answer('streaming'))));
    // Another tab deleted the chat or asked anew: nobody wants this answer.
    if (kept === false) live.controller.abort();
    this.tabs.chatChanged(state.id);
  }

  // Changing.

  /** change changes a chat; one that is not written down yet keeps the change until it is. */
  async change(state: ChatState, change: Partial<Omit<Chat, 'id'>>): Promise<void> {
    state.chat.value = { ...state.chat.value, ...change };
    if (change.model) write('model', change.model);
    if (!state.saved) return;
    const kept = await this.attempt((db) => db.changeChat(state.chat.value));
    if (kept === false) state.saved = false;
    else this.listed(state.chat.value);
  }

  private async keep(state: ChatState, title: string): Promise<void> {
    state.saved = true;
    state.chat.value = { ...state.chat.value, title };
    await this.attempt((db) => db.putChat(state.chat.value));
    this.listed(state.chat.value);
  }

  private listed(chat: Chat): void {
    this.list.value = sorted([chat, ...this.list.value.filter((other) => other.id !== chat.id)]);
    this.tabs.listChanged();
  }

  async rename(id: string, title: string): Promise<void> {
    const state = await this.open(id);
    if (state && title.trim() !== '') await this.change(state, { title: title.trim() });
  }

  async remove(id: string): Promise<void> {
    const state = this.states.get(id);
    if (state) state.saved = false;
    state?.live.value?.controller.abort();
    this.states.delete(id);
    await this.attempt((db) => db.remove(id));
    this.list.value = this.list.value.filter((chat) => chat.id !== id);
    this.tabs.listChanged();
    this.tabs.chatChanged(id);
  }

  /** insert adds chats from a file; it throws if they cannot be kept. */
  async insert(chats: ChatWithMessages[]): Promise<void> {
    if (this.db === null) throw new Error('This browser keeps no chats.');
    await this.db.insert(chats);
    await this.readList();
    this.tabs.listChanged();
  }

  private async append(state: ChatState, drafts: Draft[]): Promise<void> {
    const next = (state.last()?.n ?? -1) + 1;
    const added = (await this.attempt((db) => db.append(state.id, drafts))) ?? place(state.id, drafts, next);
    state.messages.value = [...state.messages.value, ...added];
    this.tabs.chatChanged(state.id);
  }

  private async write(state: ChatState, message: Message): Promise<void> {
    state.replace(message);
    await this.attempt((db) => db.update(message));
    this.tabs.chatChanged(state.id);
  }

  // Other tabs, and earlier lives of this one.

  private async reload(id: string): Promise<void> {
    const state = this.states.get(id);
    if (!state?.saved || state.live.value) return;
    const [chat, messages] = [await this.attempt((db) => db.chat(id)), await this.attempt((db) => db.messages(id))];
    if (state.live.value || !messages) return;
    if (chat) state.chat.value = chat;
    // Deleted in another tab: what is sent from here makes it a new chat.
    else state.saved = false;
    state.messages.value = keepEqual(state.messages.value, messages);
    const open = messages.filter(isOpen);
    state.elsewhere.value = open.length > 0;
    for (const message of open) void this.watch(state, message.id);
  }

  /** watch asks for the tab that receives an answer until it has ended, and marks it as interrupted when that tab is gone. */
  private async watch(state: ChatState, messageId: string): Promise<void> {
    if (this.watched.has(messageId)) return;
    this.watched.add(messageId);
    while (await this.tabs.elsewhere(messageId)) await new Promise((resolve) => setTimeout(resolve, watchMilliseconds));
    this.watched.delete(messageId);
    if (this.owned.has(messageId)) return;
    await this.attempt((db) => db.interrupt(messageId));
    this.tabs.chatChanged(state.id);
    await this.reload(state.id);
  }

  private async readList(): Promise<void> {
    const chats = await this.attempt((db) => db.chats());
    if (chats) this.list.value = sorted(chats);
  }

  /** rescue keeps the last words of running answers when the page goes; the database would be too slow. */
  rescue(): void {
    const messages: Message[] = [];
    for (const state of this.states.values()) {
      const live = state.live.value;
      const message = live && currentMessage(state, live);
      if (message) messages.push(withPicked(message, live.answer('interrupted')));
    }
    if (messages.length > 0) write('rescued', JSON.stringify(messages), 'session');
  }

  private async takeRescued(): Promise<void> {
    const rescued = read('rescued', 'session');
    if (rescued === null) return;
    for (const message of JSON.parse(rescued) as Message[]) await this.db?.update(message);
    write('rescued', null, 'session');
  }

  private mark(id: string, runs: boolean): void {
    const running = new Set(this.running.value);
    if (runs) running.add(id);
    else running.delete(id);
    this.running.value = running;
  }

  private async attempt<T>(work: (db: Database) => Promise<T>): Promise<T | undefined> {
    if (this.db === null) return undefined;
    try {
      return await work(this.db);
    } catch (err) {
      this.notKept.value = reasonOf(err);
      return undefined;
    }
  }
}

function emptyAnswer(model: string): Answer {
  return { text: '', reasoning: '', state: 'streaming', model };
}

function answerDraft(model: string) {
  return { id: newId(), role: 'assistant' as const, answers: [emptyAnswer(model)] as [Answer], pick: 0 };
}

/** keepEqual takes the old objects for messages that did not change, so that they are not drawn again. */
function keepEqual(old: Message[], messages: Message[]): Message[] {
  const known = new Map(old.map((message) => [message.id, message]));
  return messages.map((message) => {
    const same = known.get(message.id);
    return same && JSON.stringify(same) === JSON.stringify(message) ? same : message;
  });
}

function currentMessage(state: ChatState, live: LiveAnswer): AssistantMessage | undefined {
  const message = state.messages.value.find((other) => other.id === live.messageId);
  return message?.role === 'assistant' ? message : undefined;
}

/** turnsFor is what the model gets to read: all before the last message, and what there is of a continued answer. */
export function turnsFor(messages: Message[], base: Answer): Turn[] {
  const turns: Turn[] = [];
  for (const message of messages.slice(0, -1)) {
    const content = message.role === 'user' ? message.text : picked(message).text;
    if (content !== '') turns.push({ role: message.role, content });
  }
  if (base.text !== '') turns.push({ role: 'assistant', content: base.text }, { role: 'user', content: continuePrompt });
  return turns;
}

function sorted(chats: Chat[]): Chat[] {
  return [...chats].sort((a, b) => b.updated - a.updated);
}

function reasonOf(err: unknown): string {
  return err instanceof Error ? err.message : String(err);
}

/** throttle runs work at once and then at most once in each span, the last call not forgotten. */
function throttle(milliseconds: number, work: () => void): () => void {
  let timer: ReturnType<typeof setTimeout> | undefined;
  let again = false;
  const run = () => {
    again = false;
    work();
    timer = setTimeout(() => {
      timer = undefined;
      if (again) run();
    }, milliseconds);
  };
  return () => {
    if (timer === undefined) run();
    else again = true;
  };
}
