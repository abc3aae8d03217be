import { describe, expect, it } from 'vitest';
import { exportChats, importChats, titleOf } from '../src/chat/transfer';
import type { AssistantMessage, Chat, Message } from '../src/chat/types';

const chat: Chat = { id: 'c1', title: 'Bicycles', created: 1, updated: 2, model: 'm', params: { system: 'Be brief.', temperature: 0, seed: 7 } };
const messages: Message[] = [
  { id: 'a', chatId: 'c1', n: 0, role: 'user', text: 'Hi' },
  {
    id: 'b',
    chatId: 'c1',
    n: 1,
    role: 'assistant',
    pick: 1,
    answers: [
      { text: 'old', reasoning: '', state: 'done', model: 'm' },
      { text: 'new', reasoning: 'hm', state: 'stopped', model: 'm', stats: { totalMs: 5, promptTokens: 3, reason: 'near' } },
    ],
  },
];

describe('export and import', () => {
  it('keep everything that is shown', () => {
    const [read] = importChats(exportChats([{ chat, messages }]), 99);
    expect(read?.chat).toMatchObject({ title: 'Bicycles', created: 1, updated: 2, model: 'm', params: chat.params });
    expect(read?.chat.id).not.toBe('c1');
    expect(read?.messages[0]).toMatchObject({ role: 'user', text: 'Hi' });
    const answer = read?.messages[1] as AssistantMessage;
    expect(answer.answers).toHaveLength(1);
    expect(answer.answers[0]).toMatchObject({ text: 'new', reasoning: 'hm', state: 'stopped', stats: { totalMs: 5, promptTokens: 3, reason: 'near' } });
  });

  it('give new ids each time', () => {
    const json = exportChats([{ chat, messages }]);
    expect(importChats(json, 0)[0]?.chat.id).not.toBe(importChats(json, 0)[0]?.chat.id);
  });
});

describe('importChats', () => {
  const good: [name: string, json: string, texts: string[]][] = [
    ['a bare list', '[{"role":"user","content":"q"},{"role":"assistant","content":"a"}]', ['q', 'a']],
    ['an object', '{"messages":[{"role":"user","content":"q"}]}', ['q']],
    ['parts', '[{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}]', ['ab']],
    ['null content', '[{"role":"assistant","content":null}]', ['']],
  ];
  for (const [name, json, texts] of good) {
    it(`reads ${name}`, () => {
      const [read] = importChats(json, 5);
      expect(read?.messages.map((message) => (message.role === 'user' ? message.text : message.answers[0]?.text))).toEqual(texts);
      expect(read?.chat.created).toBe(5);
    });
  }

  it('takes a system message as the system prompt', () => {
    const [read] = importChats('[{"role":"system","content":"S"},{"role":"user","content":"q"}]', 0);
    expect(read?.chat.params.system).toBe('S');
    expect(read?.messages).toHaveLength(1);
  });

  it('marks an answer that was still running as interrupted', () => {
    const [read] = importChats('[{"role":"assistant","content":"x","state":"streaming"}]', 0);
    expect((read?.messages[0] as AssistantMessage).answers[0]?.state).toBe('interrupted');
  });

  it('drops fields of a wrong type', () => {
    const [read] = importChats('{"title":5,"created":"x","params":{"temperature":"hot","system":7},"messages":[{"role":"assistant","content":"x","state":"evil","stats":{"totalMs":"1"}}]}', 3);
    expect(read?.chat).toMatchObject({ title: 'Imported chat', created: 3, params: {} });
    expect((read?.messages[0] as AssistantMessage).answers[0]).toMatchObject({ state: 'done', stats: undefined });
  });

  const bad: [name: string, json: string, message: RegExp][] = [
    ['text', 'hello', /not JSON/],
    ['a number', '5', /no chat/],
    ['null', 'null', /no chat/],
    ['an empty list of chats', '{"chats":[]}', /no chat/],
    ['no messages', '{"title":"x"}', /"messages" is missing/],
    ['an unknown role', '[{"role":"robot","content":"x"}]', /message 1 of chat 1.*"robot"/],
    ['a wrong content', '[{"role":"user","content":{"a":1}}]', /message 1 of chat 1.*not text/],
    ['a later version', '{"format":"tandem-chats","version":2,"chats":[{"messages":[]}]}', /version 2/],
  ];
  for (const [name, json, message] of bad) {
    it(`refuses ${name}`, () => {
      expect(() => importChats(json, 0)).toThrow(message);
    });
  }
});

describe('titleOf', () => {
  it('is the first line, cut to a readable length', () => {
    expect(titleOf('  Hello\nworld')).toBe('Hello');
    expect(titleOf('x'.repeat(100))).toHaveLength(60);
    expect(titleOf('   ')).toBe('New chat');
  });
});
