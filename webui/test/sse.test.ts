import { describe, expect, it } from 'vitest';
import { maxEventLength, readEvents, readLines, SSEParser, type SSEEvent } from '../src/lib/sse';

function parse(...pieces: string[]): SSEEvent[] {
  const events: SSEEvent[] = [];
  const parser = new SSEParser((event) => events.push(event));
  for (const piece of pieces) parser.push(piece);
  return events;
}

function body(...pieces: (string | Uint8Array)[]): ReadableStream<Uint8Array> {
  const encoder = new TextEncoder();
  return new ReadableStream({
    start(controller) {
      for (const piece of pieces) controller.enqueue(typeof piece === 'string' ? encoder.encode(piece) : piece);
      controller.close();
    },
  });
}

async function all<T>(source: AsyncIterable<T>): Promise<T[]> {
  const out: T[] = [];
  for await (const value of source) out.push(value);
  return out;
}

const message = (data: string): SSEEvent => ({ event: 'message', data });

describe('SSEParser', () => {
  const cases: [name: string, text: string, want: SSEEvent[]][] = [
    ['one event', 'data: a\n\n', [message('a')]],
    ['two events', 'data: a\n\ndata: b\n\n', [message('a'), message('b')]],
    ['several lines', 'data: a\ndata:\ndata: b\n\n', [message('a\n\nb')]],
    ['CRLF', 'data: a\r\n\r\ndata: b\r\n\r\n', [message('a'), message('b')]],
    ['CR', 'data: a\r\rdata: b\r\r', [message('a'), message('b')]],
    ['name', 'event: ready\ndata: {}\n\ndata: x\n\n', [{ event: 'ready', data: '{}' }, message('x')]],
    ['comments', ': keep-alive\n\ndata: a\n: in between\ndata: b\n\n', [message('a\nb')]],
    ['no space', 'data:a\n\n', [message('a')]],
    ['only one space is dropped', 'data:  a\n\n', [message(' a')]],
    ['colon in the data', 'data: a: b\n\n', [message('a: b')]],
    ['byte order mark', '\ufeffdata: a\n\n', [message('a')]],
    ['unknown fields', 'id: 1\nretry: 5\nfoo: bar\nbaz\ndata: a\n\n', [message('a')]],
    ['a name without data', 'event: x\n\ndata: a\n\n', [message('a')]],
    ['not ended', 'data: a\n\ndata: b\n', [message('a')]],
    ['nothing', '', []],
  ];
  for (const [name, text, want] of cases) {
    it(name, () => {
      expect(parse(text)).toEqual(want);
    });
    it(`${name}, cut everywhere`, () => {
      expect(parse(...text)).toEqual(want);
      for (let i = 0; i <= text.length; i++) expect(parse(text.slice(0, i), text.slice(i))).toEqual(want);
    });
  }

  it('refuses an endless line and an endless event', () => {
    const quarter = 'x'.repeat(maxEventLength / 4);
    expect(() => parse('data: ', quarter, quarter, quarter, quarter)).toThrow(/longer than/);
    expect(() => parse(...Array<string>(4).fill(`data: ${quarter}\n`))).toThrow(/longer than/);
  });
});

describe('readEvents', () => {
  it('keeps characters that are cut between packets', async () => {
    const bytes = new TextEncoder().encode('data: grün 🚲\n\n');
    for (let i = 0; i <= bytes.length; i++) {
      expect(await all(readEvents(body(bytes.slice(0, i), bytes.slice(i))))).toEqual([message('grün 🚲')]);
    }
  });

  it('cancels the body when the reader leaves', async () => {
    let cancelled = false;
    const endless = new ReadableStream<Uint8Array>({
      pull: (controller) => controller.enqueue(new TextEncoder().encode('data: a\n\n')),
      cancel: () => void (cancelled = true),
    });
    for await (const event of readEvents(endless)) {
      expect(event.data).toBe('a');
      break;
    }
    expect(cancelled).toBe(true);
  });
});

describe('readLines', () => {
  it('reads values cut anywhere, the last one without a line end', async () => {
    expect(await all(readLines(body('{"a":', '1}\n\n{"a":2}', '\n{"a":3}')))).toEqual([{ a: 1 }, { a: 2 }, { a: 3 }]);
  });

  it('throws at what is not JSON', async () => {
    await expect(all(readLines(body('{"a":1}\nnonsense\n')))).rejects.toThrow();
  });
});
