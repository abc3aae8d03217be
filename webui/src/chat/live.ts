import { signal } from '@preact/signals';
import type { Failure } from '../lib/api';
import type { CompletionEnd, CompletionListener, Opening } from './complete';
import type { Answer, AnswerState, Stats } from './types';

/** The page spends at most one part in this many on drawing a running answer. */
const drawShare = 4;

export type Phase = 'waiting' | 'thinking' | 'writing';

/**
 * LiveAnswer is an answer while it is received. Pieces are collected as they
 * come and published to the page once per frame, more seldom if drawing is
 * slow, so that a long answer cannot freeze it.
 */
export class LiveAnswer implements CompletionListener {
  readonly text = signal('');
  readonly reasoning = signal('');
  readonly phase = signal<Phase>('waiting');
  readonly pieces = signal(0); // about one per token
  readonly started = performance.now();
  readonly controller = new AbortController();

  private now: { text: string; reasoning: string; pieces: number };
  private opening: Opening = {};
  private firstAt?: number;
  private wroteAt?: number; // first piece that is not reasoning
  private lastAt?: number;
  private scheduled = false;

  /** base is the answer as it was; a continued answer goes on behind its text. */
  constructor(
    readonly messageId: string,
    readonly base: Answer,
    private readonly progressed: () => void,
  ) {
    this.now = { text: base.text, reasoning: base.reasoning, pieces: 0 };
    this.publish();
  }

  opened(opening: Opening): void {
    this.opening = opening;
  }

  piece(content: string, reasoning: string): void {
    const now = performance.now();
    this.firstAt ??= now;
    if (content !== '') this.wroteAt ??= now;
    this.lastAt = now;
    this.now.text += content;
    this.now.reasoning += reasoning;
    this.now.pieces++;
    this.schedule();
    this.progressed();
  }

  /** Tokens per second so far, from the number of pieces; 0 before the second. */
  speed(): number {
    if (this.firstAt === undefined || this.now.pieces < 2) return 0;
    return ((this.now.pieces - 1) * 1000) / Math.max(1, (this.lastAt ?? 0) - this.firstAt);
  }

  /** The answer as a record, in the given state. */
  answer(state: AnswerState, end: CompletionEnd & { failure?: Failure; maxTokens?: number } = {}): Answer {
    const { text, reasoning } = this.now;
    const { model } = this.base;
    return { text, reasoning, state, model, finish: end.finish, failure: end.failure, stats: this.stats(end) };
  }

  private stats({ usage, maxTokens }: CompletionEnd & { maxTokens?: number }): Stats {
    const since = (from: number, to?: number) => (to === undefined ? undefined : Math.round(to - from));
    return {
      ...this.opening,
      ...usage,
      maxTokens,
      pieces: this.now.pieces,
      firstMs: since(this.started, this.firstAt),
      decodeMs: this.firstAt === undefined ? undefined : since(this.firstAt, this.lastAt),
      totalMs: Math.round(performance.now() - this.started),
      reasoningMs: this.firstAt === undefined || this.now.reasoning === '' ? undefined : since(this.firstAt, this.wroteAt ?? this.lastAt),
    };
  }

  private schedule(): void {
    if (this.scheduled) return;
    this.scheduled = true;
    requestAnimationFrame((start) => {
      this.publish();
      // Runs after this frame has been drawn.
      setTimeout(() => {
        const cost = performance.now() - start;
        setTimeout(() => this.drawn(), Math.min(1000, cost * (drawShare - 1) - 30));
      });
    });
  }

  private drawn(): void {
    this.scheduled = false;
    if (this.pieces.value !== this.now.pieces) this.schedule();
  }

  private publish(): void {
    this.text.value = this.now.text;
    this.reasoning.value = this.now.reasoning;
    this.pieces.value = this.now.pieces;
    this.phase.value = this.wroteAt !== undefined ? 'writing' : this.firstAt !== undefined ? 'thinking' : 'waiting';
  }
}
