// Requests, put together from the events of all nodes that had a part in one.

import type { NodeEvent } from './status';

/** Most requests that the page remembers: those that came last. */
export const requestsKept = 400;

export interface Score {
  node: string;
  seconds: number; // until the first token, as expected; 0: the policy does not look at time
  queue_seconds: number;
  fetch_seconds: number;
  prefill_seconds: number;
  cached_tokens: number;
  why?: string; // it was no candidate
}

export interface Way {
  kind: string; // local, fetched, remote
  from?: string;
  seconds: number;
}

export interface Moved {
  from: string;
  made: boolean; // computed there for this request
  transport: string;
  wanted: number; // blocks
  blocks: number;
  bytes: number;
  seconds: number;
  estimate: number;
  outcome: string;
  error: string;
}

export interface Finished {
  at: number; // ms since 1970, by the clock of its node
  endpoint: string;
  outcome: string;
  status: number;
  cached: number;
  completion: number;
  ttft: number; // seconds
  seconds: number;
  load: number;
  queue: number;
  prefill: number;
  decode: number;
}

export interface RequestView {
  id: string;
  node: string; // id of the node that took it
  model: string;
  prompt: number; // tokens
  choices: number;
  decode: string; // name of the node that answers
  source: string; // name of the node that computes the prompt; "local": the same
  reason: string;
  scores: Score[];
  ways: Way[]; // the chosen one first
  wayReason: string;
  moved: Moved[];
  moves: { from: string; to: string; tokens: number; reason: string }[]; // to other nodes, midway
  at: number; // ms since 1970 when it was placed, by the clock of its node
  finished: Finished | null;
}

type Data = Record<string, unknown>;
const text = (data: Data, name: string) => (typeof data[name] === 'string' ? data[name] : '');
const number = (data: Data, name: string) => (typeof data[name] === 'number' ? data[name] : 0);
const list = (data: Data, name: string) => (Array.isArray(data[name]) ? (data[name] as Data[]).filter((entry) => typeof entry === 'object' && entry !== null) : []);

/** Requests holds at most requestsKept of them, by id. */
export class Requests {
  private readonly byID = new Map<string, RequestView>();

  /** take adds what an event says, and tells whether it was about a request. Events may come twice and in any order. */
  take(event: NodeEvent): boolean {
    const { kind, data } = event;
    const id = text(data, 'id');
    const part = parts[kind];
    if (part === undefined || id === '') return false;
    let known = this.byID.get(id);
    if (known === undefined) {
      known = blank(id);
      this.byID.set(id, known);
    }
    this.byID.set(id, { ...known, ...part(known, data, event) });
    if (this.byID.size > requestsKept) this.byID.delete(this.oldest());
    return true;
  }

  /** list is all requests, the latest first; of those of one moment the one that was told last. */
  list(): RequestView[] {
    return [...this.byID.values()].reverse().sort((a, b) => when(b) - when(a));
  }

  clear(): void {
    this.byID.clear();
  }

  private oldest(): string {
    let oldest: RequestView | undefined;
    for (const view of this.byID.values()) if (oldest === undefined || when(view) < when(oldest)) oldest = view;
    return oldest?.id ?? '';
  }
}

function blank(id: string): RequestView {
  return { id, node: '', model: '', prompt: 0, choices: 1, decode: '', source: '', reason: '', scores: [], ways: [], wayReason: '', moved: [], moves: [], at: 0, finished: null };
}

/** when a request began, in ms since 1970. */
export function when({ at, finished }: RequestView): number {
  return at > 0 ? at : finished ? finished.at - finished.seconds * 1000 : Number.MAX_SAFE_INTEGER;
}

const parts: Record<string, (known: RequestView, data: Data, event: NodeEvent) => Partial<RequestView>> = {
  request_placed: (_, data, { node, time }) => ({
    node,
    model: text(data, 'model'),
    prompt: number(data, 'prompt_tokens'),
    choices: number(data, 'choices'),
    decode: text(data, 'decode'),
    source: text(data, 'prefill'),
    reason: text(data, 'reason'),
    scores: list(data, 'scores').map((score) => ({
      node: text(score, 'node'),
      seconds: number(score, 'seconds'),
      queue_seconds: number(score, 'queue_seconds'),
      fetch_seconds: number(score, 'fetch_seconds'),
      prefill_seconds: number(score, 'prefill_seconds'),
      cached_tokens: number(score, 'cached_tokens'),
      why: text(score, 'why') || undefined,
    })),
    at: Date.parse(time) || 0,
  }),
  kv_way_chosen: (_, data) => ({
    ways: list(data, 'ways').map((way) => ({ kind: text(way, 'kind'), from: text(way, 'from') || undefined, seconds: number(way, 'seconds') })),
    wayReason: text(data, 'reason'),
  }),
  kv_moved: ({ moved }, data) => {
    const one: Moved = {
      from: text(data, 'from'),
      made: data.made === true,
      transport: text(data, 'transport'),
      wanted: number(data, 'wanted'),
      blocks: number(data, 'blocks'),
      bytes: number(data, 'bytes'),
      seconds: number(data, 'seconds'),
      estimate: number(data, 'estimate_seconds'),
      outcome: text(data, 'outcome'),
      error: text(data, 'error'),
    };
    // The same event may come again when the stream is opened anew.
    return { moved: moved.some((old) => old.from === one.from && old.seconds === one.seconds) ? moved : [...moved, one].slice(-8) };
  },
  request_moved: ({ moves }, data) => {
    const one = { from: text(data, 'from'), to: text(data, 'to'), tokens: number(data, 'tokens'), reason: text(data, 'reason') };
    return { decode: one.to, moves: moves.some((old) => old.tokens === one.tokens && old.to === one.to) ? moves : [...moves, one].slice(-8) };
  },
  request_finished: (known, data, { node, time }) => ({
    node,
    model: known.model || text(data, 'model'),
    prompt: known.prompt || number(data, 'prompt_tokens'),
    finished: {
      at: Date.parse(time) || 0,
      endpoint: text(data, 'endpoint'),
      outcome: text(data, 'outcome'),
      status: number(data, 'status'),
      cached: number(data, 'cached_tokens'),
      completion: number(data, 'completion_tokens'),
      ttft: number(data, 'ttft_seconds'),
      seconds: number(data, 'seconds'),
      load: number(data, 'load_seconds'),
      queue: number(data, 'queue_seconds'),
      prefill: number(data, 'prefill_seconds'),
      decode: number(data, 'decode_seconds'),
    },
  }),
};

export interface Part {
  kind: 'prepare' | 'load' | 'queue' | 'fetch' | 'transfer' | 'prefill' | 'decode' | 'rest';
  label: string;
  seconds: number;
}

/**
 * partsOf is where the time of a finished request went, in the order in which it
 * passed; what is left between the measured parts is told as the first and the
 * last. The parts add up to its whole time.
 */
export function partsOf({ finished, moved, at }: RequestView): Part[] {
  if (finished === null) return [];
  const { seconds, load, queue, prefill, decode } = finished;
  const came = moved.reduce((sum, one) => sum + one.seconds, 0);
  const inQueue = Math.min(came, queue);
  const made = moved.some((one) => one.made);
  const measured = load + queue + prefill + decode;
  const left = Math.max(0, seconds - measured);
  // The request was placed when all before the queue was done.
  const before = at > 0 && finished.at > 0 ? Math.min(left, Math.max(0, seconds - (finished.at - at) / 1000 - load)) : 0;
  const all: Part[] = [
    { kind: 'prepare', label: 'read and placed', seconds: before },
    { kind: 'load', label: 'model loaded', seconds: load },
    { kind: 'queue', label: 'queued', seconds: queue - inQueue },
    made ? { kind: 'transfer', label: 'computed elsewhere, transferred', seconds: inQueue } : { kind: 'fetch', label: 'KV fetched', seconds: inQueue },
    { kind: 'prefill', label: 'prompt computed', seconds: prefill },
    { kind: 'decode', label: 'answer written', seconds: decode },
    { kind: 'rest', label: 'sent', seconds: left - before },
  ];
  return all.filter((part) => part.seconds >= 0.0005);
}

/** speedOf is how fast an answer was written, in tokens per second; 0: too short to tell. */
export function speedOf({ finished }: RequestView): number {
  if (finished === null || finished.completion < 2) return 0;
  const seconds = finished.decode > 0 ? finished.decode : finished.ttft > 0 ? finished.seconds - finished.ttft : 0;
  return seconds > 0 ? (finished.completion - 1) / seconds : 0;
}

/** wayInWords names a way. */
export function wayInWords({ kind, from }: Way, decode: string): string {
  switch (kind) {
    case 'local':
      return `computed on ${decode || 'the node that answers'} itself`;
    case 'fetched':
      return `KV fetched from ${from ?? 'another node'}`;
    case 'remote':
      return `computed by ${from ?? 'another node'}, KV pulled meanwhile`;
    default:
      return kind;
  }
}

export interface Filter {
  words: string;
  outcome: string; // "": any; "running"; "failed"
}

/** matches tells whether a request is what a person looks for: all words, anywhere in what is known of it. */
export function matches(view: RequestView, { words, outcome }: Filter, names: (node: string) => string): boolean {
  const ended = view.finished?.outcome ?? 'running';
  if (outcome === 'failed' ? !['error', 'rejected', 'cancelled'].includes(ended) : outcome !== '' && ended !== outcome) return false;
  const all = [view.id, view.model, view.decode, view.source, view.reason, view.wayReason, names(view.node), ended, view.finished?.endpoint ?? ''].join(' ').toLowerCase();
  return words
    .toLowerCase()
    .split(/\s+/)
    .every((word) => all.includes(word));
}
