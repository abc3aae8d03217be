// Chats in this browser. One record per message: a running answer rewrites
// only its own, however long the chat is.

import { openDB, type DBSchema, type IDBPDatabase } from 'idb';
import { interrupted, isOpen, type Chat, type Draft, type Message } from './types';

interface Schema extends DBSchema {
  chats: { key: string; value: Chat };
  messages: { key: string; value: Message; indexes: { order: [string, number] } };
}

export interface ChatWithMessages {
  chat: Chat;
  messages: Draft[];
}

/** Database is shared by all tabs; each method is one transaction. */
export class Database {
  private constructor(private readonly db: IDBPDatabase<Schema>) {}

  static async open(name = 'tandem'): Promise<Database> {
    const db = await openDB<Schema>(name, 1, {
      upgrade(db) {
        db.createObjectStore('chats', { keyPath: 'id' });
        db.createObjectStore('messages', { keyPath: 'id' }).createIndex('order', ['chatId', 'n'], { unique: true });
      },
    });
    return new Database(db);
  }

  close(): void {
    this.db.close();
  }

  chats(): Promise<Chat[]> {
    return this.db.getAll('chats');
  }

  chat(id: string): Promise<Chat | undefined> {
    return this.db.get('chats', id);
  }

  /** The messages of a chat in order. */
  messages(chatId: string): Promise<Message[]> {
    return this.db.getAllFromIndex('messages', 'order', range(chatId));
  }

  async putChat(chat: Chat): Promise<void> {
    await this.db.put('chats', chat);
  }

  /** changeChat rewrites a chat unless it has been deleted meanwhile, and says which. */
  async changeChat(chat: Chat): Promise<boolean> {
    const tx = this.db.transaction('chats', 'readwrite');
    const exists = (await tx.store.getKey(chat.id)) !== undefined;
    if (exists) void tx.store.put(chat);
    await tx.done;
    return exists;
  }

  /** append adds drafts behind the last message, whichever tab wrote that, and returns them with their places. */
  async append(chatId: string, drafts: Draft[]): Promise<Message[]> {
    const tx = this.db.transaction('messages', 'readwrite');
    const last = await tx.store.index('order').openCursor(range(chatId), 'prev');
    const messages = place(chatId, drafts, last ? last.value.n + 1 : 0);
    for (const message of messages) void tx.store.put(message);
    await tx.done;
    return messages;
  }

  /** update rewrites a message unless it has been deleted meanwhile, and says which. */
  async update(message: Message): Promise<boolean> {
    const tx = this.db.transaction('messages', 'readwrite');
    const exists = (await tx.store.getKey(message.id)) !== undefined;
    if (exists) void tx.store.put(message);
    await tx.done;
    return exists;
  }

  /** interrupt marks what is still open in a message as interrupted, unless its tab has ended it meanwhile. */
  async interrupt(messageId: string): Promise<void> {
    const tx = this.db.transaction('messages', 'readwrite');
    const message = await tx.store.get(messageId);
    if (message && isOpen(message)) void tx.store.put(interrupted(message));
    await tx.done;
  }

  /** removeFrom deletes the messages at place n and behind it. */
  async removeFrom(chatId: string, n: number): Promise<void> {
    const tx = this.db.transaction('messages', 'readwrite');
    for (const key of await tx.store.index('order').getAllKeys(range(chatId, n))) void tx.store.delete(key);
    await tx.done;
  }

  async remove(chatId: string): Promise<void> {
    const tx = this.db.transaction(['chats', 'messages'], 'readwrite');
    const messages = tx.objectStore('messages');
    void tx.objectStore('chats').delete(chatId);
    for (const key of await messages.index('order').getAllKeys(range(chatId))) void messages.delete(key);
    await tx.done;
  }

  /** insert adds whole chats: all of them, or none if the browser refuses. */
  async insert(chats: ChatWithMessages[]): Promise<void> {
    const tx = this.db.transaction(['chats', 'messages'], 'readwrite');
    for (const { chat, messages } of chats) {
      void tx.objectStore('chats').put(chat);
      for (const message of place(chat.id, messages, 0)) void tx.objectStore('messages').put(message);
    }
    await tx.done;
  }
}

export function place(chatId: string, drafts: Draft[], first: number): Message[] {
  return drafts.map((draft, i) => ({ ...draft, chatId, n: first + i }) as Message);
}

function range(chatId: string, from = 0): IDBKeyRange {
  return IDBKeyRange.bound([chatId, from], [chatId, Infinity]);
}
