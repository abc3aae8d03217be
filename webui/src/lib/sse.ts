// Server-sent events read from a fetch body. EventSource cannot be used: it
// neither posts nor sends an Authorization header.

export interface SSEEvent {
  event: string; // "message" unless the server named it
  data: string;
}

/** Longest event that is held in memory, in UTF-16 units. */
export const maxEventLength = 16 * 1024 * 1024;

const LF = 10;
const CR = 13;

/**
 * SSEParser takes text in pieces cut anywhere and emits whole events. Comments
 * and unknown fields are skipped, as the standard asks; an event without data
 * is not emitted.
 */
export class SSEParser {
  private line = '';
  private data: string[] = [];
  private length = 0;
  private event = '';
  private afterCR = false;
  private started = false;

  constructor(private readonly emit: (event: SSEEvent) => void) {}

  push(text: string): void {
    if (!this.started && text !== '') {
      this.started = true;
      if (text.charCodeAt(0) === 0xfeff) text = text.slice(1);
    }
    let start = 0;
    for (let i = 0; i < text.length; i++) {
      const c = text.charCodeAt(i);
      const second = c === LF && this.afterCR;
      this.afterCR = c === CR;
      if (c !== LF && c !== CR) continue;
      if (!second) this.endLine(this.line + text.slice(start, i));
      this.line = '';
      start = i + 1;
    }
    this.line += text.slice(start);
    this.checkLength(this.line.length);
  }

  private endLine(line: string): void {
    if (line === '') return this.endEvent();
    const colon = line.indexOf(':');
    if (colon === 0) return;
    const field = colon < 0 ? line : line.slice(0, colon);
    let value = colon < 0 ? '' : line.slice(colon + 1);
    if (value.startsWith(' ')) value = value.slice(1);
    if (field === 'event') this.event = value;
    if (field !== 'data') return;
    this.checkLength(value.length);
    this.length += value.length + 1;
    this.data.push(value);
  }

  private endEvent(): void {
    if (this.data.length > 0) this.emit({ event: this.event || 'message', data: this.data.join('\n') });
    this.data = [];
    this.length = 0;
    this.event = '';
  }

  private checkLength(more: number): void {
    if (this.length + more > maxEventLength) throw new Error(`The server sent an event longer than ${maxEventLength} characters.`);
  }
}

/** readText yields the decoded pieces of a body and cancels it if the reader leaves early. */
export async function* readText(body: ReadableStream<Uint8Array>): AsyncGenerator<string> {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      yield decoder.decode(value, { stream: true });
    }
    yield decoder.decode();
  } finally {
    reader.cancel().catch(() => undefined);
  }
}

/** readEvents yields the events of a body. What comes after the last blank line is no event. */
export async function* readEvents(body: ReadableStream<Uint8Array>): AsyncGenerator<SSEEvent> {
  const ready: SSEEvent[] = [];
  const parser = new SSEParser((event) => ready.push(event));
  for await (const text of readText(body)) {
    parser.push(text);
    yield* ready.splice(0);
  }
}

/** readLines yields the JSON values of an NDJSON body. A line that is not JSON throws. */
export async function* readLines(body: ReadableStream<Uint8Array>): AsyncGenerator<unknown> {
  let rest = '';
  for await (const text of readText(body)) {
    rest += text;
    if (rest.length > maxEventLength) throw new Error(`The server sent a line longer than ${maxEventLength} characters.`);
    const lines = rest.split('\n');
    rest = lines.pop() ?? '';
    for (const line of lines) if (line.trim() !== '') yield JSON.parse(line);
  }
  if (rest.trim() !== '') yield JSON.parse(rest);
}
