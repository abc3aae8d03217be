import 'fake-indexeddb/auto';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { Chats, turnsFor, type ChatState } from '../src/chat/chats';
import { picked, type AssistantMessage } from '../src/chat/types';

/** A node of which the test plays the part: it says what is sent, and when. */
class FakeNode {
  readonly bodies: { messages: { role: string; content: string }[]; model: string; [name: string]: unknown }[] = [];
  private readonly streams: ReadableStreamDefaultController<Uint8Array>[] = [];

  fetch = async (_: RequestInfo | URL, init?: RequestInit): Promise<Response> => {
    if (init?.signal?.aborted) throw new DOMException('aborted', 'AbortError');
    this.bodies.push(JSON.parse(String(init?.body)));
    const stream = new ReadableStream<Uint8Array>({
      start: (controller) => {
        this.streams.push(controller);
        init?.signal?.addEventListener('abort', () => controller.error(new DOMException('aborted', 'AbortError')));
      },
    });
    return new Response(stream, { headers: { 'X-Tandem-Reason': 'only node', 'X-Tandem-Node': 'box' } });
  };

  /** Waits until the nth request has come. */
  async request(n = 0): Promise<void> {
    await vi.waitFor(() => expect(this.streams.length).toBeGreaterThan(n));
  }

  send(value: unknown, n = 0): void {
    this.raw(`data: ${JSON.stringify(value)}\n\n`, n);
  }

  text(content: string, n = 0): void {
    this.send({ choices: [{ delta: { content }, finish_reason: null }] }, n);
  }

  raw(text: string, n = 0): void {
    this.streams[n]?.enqueue(new TextEncoder().encode(text));
  }

  finish(n = 0, reason = 'stop'): void {
    this.send({ choices: [{ delta: {}, finish_reason: reason }] }, n);
    this.send({ choices: [], usage: { prompt_tokens: 9, completion_tokens: 3, prompt_tokens_details: { cached_tokens: 4 } } }, n);
    this.raw('data: [DONE]\n\n', n);
    this.close(n);
  }

  close(n = 0): void {
    this.streams[n]?.close();
  }

  lose(n = 0): void {
    this.streams[n]?.error(new TypeError('network error'));
  }
}

let node: FakeNode;
let name = 0;
let open: Chats[];

beforeEach(() => {
  node = new FakeNode();
  name++;
  open = [];
  sessionStorage.clear();
  vi.stubGlobal('fetch', node.fetch);
  vi.stubGlobal('requestAnimationFrame', (run: FrameRequestCallback) => setTimeout(() => run(performance.now())));
});

afterEach(() => {
  for (const chats of open) chats.close();
  vi.unstubAllGlobals();
});

/** Another tab of the same browser. */
async function tab(): Promise<Chats> {
  const chats = new Chats(`tab${name}`);
  open.push(chats);
  await chats.start();
  return chats;
}

async function freshChat(chats: Chats): Promise<ChatState> {
  const state = chats.fresh();
  await chats.change(state, { model: 'm' });
  return state;
}

function lastAnswer(state: ChatState) {
  return picked(state.last() as AssistantMessage);
}

describe('an answer', () => {
  it('is received, counted and written down', async () => {
    const chats = await tab();
    const state = await freshChat(chats);
    const sent = chats.send(state, 'Hello there');
    await node.request();
    expect(state.busy).toBe(true);
    node.send({ choices: [{ delta: { role: 'assistant', content: '' } }] });
    node.send({ choices: [{ delta: { reasoning_content: 'hm' } }] });
    node.text('Good ');
    node.text('day');
    node.finish();
    await sent;
    expect(lastAnswer(state)).toMatchObject({
      text: 'Good day',
      reasoning: 'hm',
      state: 'done',
      finish: 'stop',
      stats: { promptTokens: 9, cachedTokens: 4, completionTokens: 3, reason: 'only node', node: 'box' },
    });
    const other = await tab();
    expect(other.list.value.map(({ title }) => title)).toEqual(['Hello there']);
    expect(await other.messages(state.id)).toEqual(state.messages.value);
  });

  it('sends the history and the parameters that are set', async () => {
    const chats = await tab();
    const state = await freshChat(chats);
    await chats.change(state, { params: { system: 'Be brief.', temperature: 0, top_p: undefined } });
    const first = chats.send(state, 'one');
    await node.request();
    node.text('two');
    node.finish();
    await first;
    const second = chats.send(state, 'three');
    await node.request(1);
    node.finish(1);
    await second;
    expect(node.bodies[1]).toEqual({
      model: 'm',
      stream: true,
      stream_options: { include_usage: true },
      temperature: 0,
      messages: [
        { role: 'system', content: 'Be brief.' },
        { role: 'user', content: 'one' },
        { role: 'assistant', content: 'two' },
        { role: 'user', content: 'three' },
      ],
    });
  });

  it('keeps its text when it is stopped, and goes on from there', async () => {
    const chats = await tab();
    const state = await freshChat(chats);
    const sent = chats.send(state, 'go');
    await node.request();
    node.text('half');
    await vi.waitFor(() => expect(state.live.value?.text.value).toBe('half'));
    chats.stop(state);
    await sent;
    expect(lastAnswer(state)).toMatchObject({ text: 'half', state: 'stopped' });
    const more = chats.goOn(state);
    await node.request(1);
    expect(node.bodies[1]?.messages.slice(0, 2)).toEqual([
      { role: 'user', content: 'go' },
      { role: 'assistant', content: 'half' },
    ]);
    node.text(' and half', 1);
    node.finish(1);
    await more;
    expect(lastAnswer(state)).toMatchObject({ text: 'half and half', state: 'done' });
    expect(state.messages.value).toHaveLength(2);
  });

  const losses: [name: string, lose: () => void, message: RegExp][] = [
    ['an error event', () => node.send({ error: { message: 'engine failed', code: 'engine' } }), /engine failed/],
    ['a lost connection', () => node.lose(), /connection ended/],
    ['a stream without an end', () => node.close(), /connection ended/],
    ['an event that is no JSON', () => node.raw('data: {oops\n\n'), /not JSON/],
  ];
  for (const [what, lose, message] of losses) {
    it(`keeps its text after ${what}`, async () => {
      const chats = await tab();
      const state = await freshChat(chats);
      const sent = chats.send(state, 'go');
      await node.request();
      node.text('so far');
      await vi.waitFor(() => expect(state.live.value?.text.value).toBe('so far'));
      lose();
      await sent;
      expect(lastAnswer(state)).toMatchObject({ text: 'so far', state: 'failed' });
      expect(lastAnswer(state).failure?.message).toMatch(message);
      expect(state.busy).toBe(false);
    });
  }

  it('is kept beside a second one', async () => {
    const chats = await tab();
    const state = await freshChat(chats);
    const sent = chats.send(state, 'go');
    await node.request();
    node.text('first');
    node.finish();
    await sent;
    const again = chats.again(state);
    await node.request(1);
    expect(node.bodies[1]?.messages).toEqual([{ role: 'user', content: 'go' }]);
    node.text('second', 1);
    node.finish(1);
    await again;
    const message = state.last() as AssistantMessage;
    expect(message.answers.map(({ text }) => text)).toEqual(['first', 'second']);
    await chats.pick(state, message, 0);
    expect(lastAnswer(state).text).toBe('first');
  });

  it('is asked for anew when the question is edited', async () => {
    const chats = await tab();
    const state = await freshChat(chats);
    const sent = chats.send(state, 'wrnog');
    await node.request();
    node.text('?');
    node.finish();
    await sent;
    const question = state.messages.value[0];
    const edited = question?.role === 'user' ? chats.edit(state, question, 'right') : undefined;
    await node.request(1);
    expect(node.bodies[1]?.messages).toEqual([{ role: 'user', content: 'right' }]);
    node.text('!', 1);
    node.finish(1);
    await edited;
    expect(await chats.messages(state.id)).toEqual(state.messages.value);
    expect(state.messages.value).toHaveLength(2);
  });
});

describe('chats', () => {
  it('do not mix while two answers run', async () => {
    const chats = await tab();
    const [a, b] = [await freshChat(chats), await freshChat(chats)];
    const sentA = chats.send(a, 'a');
    await node.request(0);
    const sentB = chats.send(b, 'b');
    await node.request(1);
    for (let i = 0; i < 5; i++) {
      node.text('A', 0);
      node.text('B', 1);
    }
    node.finish(0);
    node.finish(1);
    await Promise.all([sentA, sentB]);
    expect([lastAnswer(a).text, lastAnswer(b).text]).toEqual(['AAAAA', 'BBBBB']);
  });

  it('take one question at a time', async () => {
    const chats = await tab();
    const state = await freshChat(chats);
    const sent = chats.send(state, 'one');
    await chats.send(state, 'two');
    await node.request();
    node.finish();
    await sent;
    expect(state.messages.value).toHaveLength(2);
  });

  it('deleted while an answer runs stay deleted', async () => {
    const chats = await tab();
    const state = await freshChat(chats);
    const sent = chats.send(state, 'one');
    await node.request();
    node.text('x');
    await chats.remove(state.id);
    await sent;
    const other = await tab();
    expect(other.list.value).toEqual([]);
    expect(await other.messages(state.id)).toEqual([]);
  });
});

describe('tabs', () => {
  it('see an answer of another tab, and that it runs', async () => {
    const [one, two] = [await tab(), await tab()];
    const state = await freshChat(one);
    const sent = one.send(state, 'go');
    await node.request();
    node.text('first words');
    await vi.waitFor(() => expect(two.list.value).toHaveLength(1));
    const seen = await two.open(state.id);
    await vi.waitFor(() => expect(seen && lastAnswer(seen)).toMatchObject({ text: 'first words', state: 'streaming' }));
    expect(seen?.busy).toBe(true);
    // Longer than a living tab may take to answer: it must still not be taken for dead.
    await new Promise((resolve) => setTimeout(resolve, 600));
    expect(seen && lastAnswer(seen).state).toBe('streaming');
    node.finish();
    await sent;
    await vi.waitFor(() => expect(seen && lastAnswer(seen).state).toBe('done'));
    await vi.waitFor(() => expect(seen?.busy).toBe(false));
  });

  it('mark an answer as interrupted when its tab is gone', async () => {
    const one = await tab();
    const state = await freshChat(one);
    void one.send(state, 'go');
    await node.request();
    node.text('half');
    await vi.waitFor(async () => expect(await one.messages(state.id)).toMatchObject([{}, { answers: [{ text: 'half' }] }]));
    one.close();
    const two = await tab();
    const seen = await two.open(state.id);
    await vi.waitFor(() => expect(seen && lastAnswer(seen)).toMatchObject({ text: 'half', state: 'interrupted' }));
  });

  it('rescue the last words when they are closed', async () => {
    const one = await tab();
    const state = await freshChat(one);
    void one.send(state, 'go');
    await node.request();
    node.text('a');
    await vi.waitFor(() => expect(state.live.value?.text.value).toBe('a'));
    node.text('b');
    await vi.waitFor(() => expect(state.live.value?.text.value).toBe('ab'));
    one.rescue();
    one.close();
    const two = await tab();
    const seen = await two.open(state.id);
    expect(seen && lastAnswer(seen)).toMatchObject({ text: 'ab', state: 'interrupted' });
  });
});

describe('turnsFor', () => {
  it('leaves out the last message and empty answers', () => {
    const turns = turnsFor(
      [
        { id: '1', chatId: 'c', n: 0, role: 'user', text: 'q' },
        { id: '2', chatId: 'c', n: 1, role: 'assistant', pick: 0, answers: [{ text: '', reasoning: 'x', state: 'failed', model: '' }] },
        { id: '3', chatId: 'c', n: 2, role: 'user', text: 'r' },
        { id: '4', chatId: 'c', n: 3, role: 'assistant', pick: 0, answers: [{ text: 'old', reasoning: '', state: 'done', model: '' }] },
      ],
      { text: '', reasoning: '', state: 'streaming', model: '' },
    );
    expect(turns).toEqual([
      { role: 'user', content: 'q' },
      { role: 'user', content: 'r' },
    ]);
  });
});
