import { describe, expect, it } from 'vitest';
import { noteFor } from '../src/chat/AnswerNote';
import { groups } from '../src/chat/ChatList';
import { errorFields } from '../src/lib/api';
import { bytes, count, milliseconds, plural, rate, seconds } from '../src/lib/format';
import { evictedInWords, modelInWords, nameOf, placesOf, usesOf, type KVPrefix } from '../src/lib/kv';
import { canChat, merge } from '../src/lib/models';
import { describe as inWords, rates, readEvent, type NodeStatus } from '../src/lib/status';
import { snippets } from '../src/pages/snippets';

describe('format', () => {
  it('is for people', () => {
    expect([bytes(0), bytes(999), bytes(1000), bytes(105_454_432), bytes(2.5e12)]).toEqual(['0 B', '999 B', '1.0 kB', '105 MB', '2.5 TB']);
    expect([milliseconds(0.4), milliseconds(999), milliseconds(1234), milliseconds(12_340)]).toEqual(['0 ms', '999 ms', '1.23 s', '12.3 s']);
    expect([seconds(3), seconds(75), seconds(7260), seconds(90_000)]).toEqual(['3.0 s', '1 min 15 s', '2 h 1 min', '1 d 1 h']);
    expect([rate(3.14), rate(1234.5), count(1234567), plural(1, 'token'), plural(2, 'token')]).toEqual(['3.1', '1,235', '1,234,567', '1 token', '2 tokens']);
  });
});

describe('errorFields', () => {
  it('reads both shapes and refuses others', () => {
    expect(errorFields({ error: { message: 'm', code: 'c', type: 't' } })).toEqual({ message: 'm', code: 'c' });
    expect(errorFields({ error: 'm' })).toEqual({ message: 'm' });
    for (const body of [null, 5, {}, { error: null }, { error: { message: 7, code: null } }]) expect(errorFields(body)).toEqual({});
  });
});

describe('models', () => {
  const tag = { name: 'a:latest', size: 5, details: { parameter_size: '135M', quantization_level: 'Q8_0', family: 'llama' } };

  it('are one list out of three answers', () => {
    const [a, b] = merge({ data: [{ id: 'a', context_length: 2048 }, { id: 'b' }] }, { models: [tag] }, { models: [{ name: 'a:latest', size: 9, expires_at: '2030-01-01T00:00:00Z' }] });
    expect(a).toMatchObject({ name: 'a', bytes: 5, parameters: '135M', contextLength: 2048, loaded: true, memoryBytes: 9, expires: Date.UTC(2030, 0, 1) });
    expect(b).toMatchObject({ name: 'b', loaded: false });
  });

  it('for embeddings are not offered for chat', () => {
    const model = { name: 'x', loaded: false };
    expect(canChat(model)).toBe(true);
    expect(canChat({ ...model, capabilities: ['completion', 'tools'] })).toBe(true);
    expect(canChat({ ...model, capabilities: ['embedding'] })).toBe(false);
  });
});

describe('kept prefixes', () => {
  const prefix: KVPrefix = {
    id: 'ab', first: 'aa', start: 0, tokens: 256, blocks: 4, ram_blocks: 4, ram_bytes: 4e6, disk_blocks: 2, disk_bytes: 2e6,
    uses: 0, last_use: '0001-01-01T00:00:00Z', tokens_spared: 0, pinned: false, leased: false, branches: 0,
  };

  it('have a name', () => {
    expect(nameOf(prefix)).toBe('The first 256 tokens');
    expect(nameOf({ ...prefix, start: 1024 })).toBe('256 tokens after 1,024');
    expect(nameOf({ ...prefix, words: 'You are' })).toBe('You are…');
    expect(nameOf({ ...prefix, words: 'You are', start: 64 })).toBe('… You are…');
  });

  it('say where they are and what they are good for', () => {
    expect(placesOf(prefix)).toEqual(['4.0 MB in memory', '2.0 MB on disk (2 of 4 blocks)']);
    expect(placesOf({ ...prefix, ram_blocks: 0, disk_blocks: 0 })).toEqual([]);
    expect(usesOf(prefix, 0)).toEqual(['not used yet']);
    expect(usesOf({ ...prefix, uses: 3, last_use: '2026-01-01T00:00:00Z', tokens_spared: 500, leased: true }, Date.UTC(2026, 0, 1, 0, 1, 30))).toEqual([
      'used 3 times', 'last 1 min 30 s ago', 'spared 500 tokens', 'in use now',
    ]);
  });

  it('belong to models', () => {
    const model = { name: 'm', loaded: true, kept: true, block_tokens: 64, tokens_spared: 640, seconds_per_token: 0.0066, seconds_spared: 4.2 };
    expect(modelInWords(model)).toBe('Kept in blocks of 64 tokens · spared 640 tokens · about 4.2 s · computing takes 7 ms a token');
    expect(modelInWords({ ...model, kept: false, reason: 'recurrent layers' })).toBe('Nothing is kept: recurrent layers.');
    expect(modelInWords({ ...model, loaded: false, block_tokens: undefined, seconds_per_token: 0, seconds_spared: 0 })).toBe('Not in memory now · spared 640 tokens');
  });

  it('are evicted, or not', () => {
    expect(evictedInWords({ ram_blocks: 4, disk_blocks: 2, kept: 0 })).toBe('Evicted 4 blocks.');
    expect(evictedInWords({ ram_blocks: 0, disk_blocks: 1, kept: 1 })).toMatch('1 stays, because it is pinned');
    expect(evictedInWords({ ram_blocks: 0, disk_blocks: 0, kept: 2 })).toMatch('2 stay, because they are');
  });
});

describe('rates', () => {
  const look = (at: number, generated: number, name = 'm') =>
    ({ at, status: { models: [{ name, tokens_generated: generated, prompt_tokens_computed: 0 }] } as unknown as NodeStatus });

  it('compare two looks', () => {
    expect(rates(null, look(0, 10))).toBeNull();
    expect(rates(look(0, 10), look(2000, 70))?.generated).toBe(30);
  });

  it('do not fall below zero when a model was loaded anew', () => {
    expect(rates(look(0, 1000), look(1000, 20))?.generated).toBe(20);
  });
});

describe('events', () => {
  it('are read and put into words', () => {
    const event = readEvent('{"time":"t","kind":"model_loaded","data":{"model":"m","seconds":1.25}}');
    expect(event && inWords(event)).toBe('Loaded m in 1.3 s');
    const unknown = readEvent('{"kind":"node_joined","data":{"name":"b","tags":[1]}}');
    expect(unknown && inWords(unknown)).toBe('node joined name=b tags=[1]');
  });

  it('of no known shape are dropped', () => {
    for (const json of ['', 'x', 'null', '5', '{}', '{"kind":5,"data":{}}', '{"kind":"x","data":null}']) expect(readEvent(json)).toBeNull();
  });
});

describe('noteFor', () => {
  const answer = { text: 'some', reasoning: '', model: 'm' } as const;
  it('says why an answer ended and how to go on', () => {
    expect(noteFor({ ...answer, state: 'done', finish: 'stop' })).toBeNull();
    expect(noteFor({ ...answer, state: 'done', finish: 'length', stats: { totalMs: 1, promptTokens: 100, completionTokens: 28 } })).toMatchObject({ text: expect.stringMatching(/context is full \(100 tokens/), ways: ['new'] });
    expect(noteFor({ ...answer, state: 'done', finish: 'length', stats: { totalMs: 1, completionTokens: 28, maxTokens: 28 } })).toMatchObject({ text: expect.stringMatching(/limit of 28/), ways: ['continue'] });
    const short = { ...answer, state: 'done', finish: 'length', stats: { totalMs: 1, promptTokens: 100, completionTokens: 28 } } as const;
    expect(noteFor(short, 4096)).toMatchObject({ text: expect.stringMatching(/Stopped by the node after 28/), ways: ['continue'] });
    expect(noteFor(short, 128)).toMatchObject({ ways: ['new'] });
    expect(noteFor({ ...answer, state: 'failed', failure: { status: 503, message: 'busy', retryAfter: 3 } })).toMatchObject({ text: 'Busy. Try again in 3 s.', ways: ['continue', 'again'] });
    expect(noteFor({ ...answer, text: '', state: 'failed', failure: { status: 0, message: 'gone' } })).toMatchObject({ ways: ['again'] });
    expect(noteFor({ ...answer, state: 'failed', failure: { status: 400, message: 'too long', code: 'context_length_exceeded' } })).toMatchObject({ ways: ['new'] });
  });
});

describe('groups', () => {
  it('name the day and keep the order', () => {
    const now = new Date(2026, 4, 10, 12);
    const at = (day: number, hour: number) => ({ id: `${day}-${hour}`, title: '', created: 0, updated: new Date(2026, 4, day, hour).getTime(), model: '', params: {} });
    const parts = groups([at(10, 11), at(10, 0), at(9, 23), at(5, 1), at(1, 1)], now);
    expect(parts.map(([name, list]) => [name, list.map(({ id }) => id)])).toEqual([
      ['Today', ['10-11', '10-0']],
      ['Yesterday', ['9-23']],
      ['Last seven days', ['5-1']],
      ['Earlier', ['1-1']],
    ]);
  });
});

describe('snippets', () => {
  it('name the address and the model, and no key', () => {
    for (const { title, code } of snippets('http://box:9494', 'm:1b')) {
      expect(code, title).toContain('http://box:9494');
      if (title !== 'Open WebUI') expect(code, title).toContain('m:1b');
    }
  });
});
