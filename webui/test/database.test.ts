import 'fake-indexeddb/auto';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { Database } from '../src/chat/database';
import type { Chat, Draft, UserMessage } from '../src/chat/types';

let name = 0;
let db: Database;

beforeEach(async () => {
  db = await Database.open(`test${name++}`);
});

afterEach(() => db.close());

const chat = (id: string): Chat => ({ id, title: id, created: 0, updated: 0, model: '', params: {} });
const user = (id: string): Draft => ({ id, role: 'user', text: id });
const texts = async (id: string) => (await db.messages(id)).map((message) => (message as UserMessage).text);

describe('Database', () => {
  it('keeps the order of messages, more than ten of them', async () => {
    const ids = Array.from({ length: 25 }, (_, i) => `m${i}`);
    for (const id of ids) await db.append('c', [user(id)]);
    expect(await texts('c')).toEqual(ids);
  });

  it('gives every message a place of its own when two tabs append at once', async () => {
    await Promise.all([db.append('c', [user('a1'), user('a2')]), db.append('c', [user('b1'), user('b2')])]);
    const messages = await db.messages('c');
    expect(messages.map(({ n }) => n)).toEqual([0, 1, 2, 3]);
    expect(await texts('c')).toEqual(['a1', 'a2', 'b1', 'b2']);
  });

  it('does not mix chats whose ids begin alike', async () => {
    await db.append('c', [user('x')]);
    await db.append('c1', [user('y')]);
    expect(await texts('c')).toEqual(['x']);
    expect(await texts('c1')).toEqual(['y']);
  });

  it('does not bring a deleted message back', async () => {
    const [message] = await db.append('c', [user('x')]);
    expect(await db.update({ ...(message as UserMessage), text: 'changed' })).toBe(true);
    await db.remove('c');
    expect(await db.update(message as UserMessage)).toBe(false);
    expect(await texts('c')).toEqual([]);
  });

  it('deletes a chat with its messages and leaves others', async () => {
    await db.putChat(chat('c'));
    await db.putChat(chat('d'));
    await db.append('c', [user('x')]);
    await db.append('d', [user('y')]);
    await db.remove('c');
    expect((await db.chats()).map(({ id }) => id)).toEqual(['d']);
    expect(await texts('d')).toEqual(['y']);
  });

  it('removes from a place on', async () => {
    await db.append('c', [user('x'), user('y'), user('z')]);
    await db.removeFrom('c', 1);
    expect(await texts('c')).toEqual(['x']);
    await db.append('c', [user('w')]);
    expect(await texts('c')).toEqual(['x', 'w']);
  });

  it('inserts whole chats', async () => {
    await db.insert([{ chat: chat('c'), messages: [user('x'), user('y')] }]);
    expect(await texts('c')).toEqual(['x', 'y']);
    expect(await db.chat('c')).toMatchObject({ title: 'c' });
  });
});
