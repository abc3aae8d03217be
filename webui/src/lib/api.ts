// One way to call the node: it adds the key, turns every failure into an
// ApiError, asks for the key when one is needed, and knows whether the node
// answers at all.

import { signal } from '@preact/signals';
import { read, write } from './settings';

/** Longest error body that is read for its message, in characters. */
const maxErrorLength = 64 * 1024;

export interface Failure {
  message: string;
  status: number; // 0: no HTTP answer
  code?: string;
  retryAfter?: number; // seconds
}

/** ApiError is a refusal of the node, or the lack of an answer (status 0). */
export class ApiError extends Error implements Failure {
  readonly status: number;
  readonly code?: string;
  readonly retryAfter?: number;

  constructor(failure: Failure) {
    super(failure.message);
    this.name = 'ApiError';
    this.status = failure.status;
    this.code = failure.code;
    this.retryAfter = failure.retryAfter;
  }

  get failure(): Failure {
    const { message, status, code, retryAfter } = this;
    return { message, status, code, retryAfter };
  }
}

/** toFailure makes plain data of anything thrown. */
export function toFailure(err: unknown): Failure {
  if (err instanceof ApiError) return err.failure;
  return { status: 0, message: err instanceof Error ? err.message : String(err) };
}

/** reachable is false from a call without an answer until the node answers again. */
export const reachable = signal(true);

const unreachable = 'This node does not answer. It may be restarting, or the network to it is down.';
const probeMilliseconds = 2000;

function lost(): void {
  if (!reachable.value) return;
  reachable.value = false;
  const probe = async () => {
    try {
      await fetch('/healthz', { cache: 'no-store' });
      reachable.value = true;
    } catch {
      setTimeout(probe, probeMilliseconds);
    }
  };
  setTimeout(probe, probeMilliseconds);
}

/** The API key in use, or ''. */
export function apiKey(): string {
  return read('key', 'session') ?? read('key', 'local') ?? '';
}

export function setApiKey(key: string, remember: boolean): void {
  write('key', null, 'local');
  write('key', null, 'session');
  if (key !== '') write('key', key, remember ? 'local' : 'session');
}

interface KeyQuestion {
  refused: boolean; // a key was sent and not accepted
  answer: (given: boolean) => void;
}

/** keyQuestion is set while the page should show its key dialog. */
export const keyQuestion = signal<KeyQuestion | null>(null);
let asking: Promise<boolean> | null = null;
let dismissed = false;

/** askKey opens the dialog, or joins the one that is open; true: a key was given. */
export function askKey(refused: boolean): Promise<boolean> {
  asking ??= new Promise<boolean>((resolve) => {
    keyQuestion.value = {
      refused,
      answer: (given) => {
        keyQuestion.value = null;
        asking = null;
        dismissed = !given;
        resolve(given);
      },
    };
  });
  return asking;
}

export interface CallOptions {
  method?: string;
  json?: unknown;
  signal?: AbortSignal;
  /** Background calls do not ask for a key again after the person closed the dialog. */
  background?: boolean;
}

/** call sends one request and returns its successful response. It throws ApiError, or the abort of signal. */
export async function call(path: string, options: CallOptions = {}): Promise<Response> {
  for (;;) {
    const key = apiKey();
    const response = await send(path, key, options);
    if (response.ok) return response;
    const failure = await readFailure(response);
    const mayAsk = failure.status === 401 && !(options.background && dismissed);
    // Another call may have got a new key while this one was under way.
    if (mayAsk && (apiKey() !== key || (await askKey(key !== '')))) continue;
    throw new ApiError(failure);
  }
}

export async function getJSON<T>(path: string, options: CallOptions = {}): Promise<T> {
  const response = await call(path, options);
  try {
    return (await response.json()) as T;
  } catch (err) {
    if (options.signal?.aborted) throw err;
    throw new ApiError({ status: response.status, message: `The answer to ${path} is not JSON.` });
  }
}

async function send(path: string, key: string, options: CallOptions): Promise<Response> {
  const headers: Record<string, string> = {};
  if (key !== '') headers.Authorization = `Bearer ${key}`;
  if (options.json !== undefined) headers['Content-Type'] = 'application/json';
  try {
    const response = await fetch(path, {
      method: options.method ?? (options.json === undefined ? 'GET' : 'POST'),
      headers,
      body: options.json === undefined ? undefined : JSON.stringify(options.json),
      signal: options.signal,
      cache: 'no-store',
    });
    reachable.value = true;
    return response;
  } catch (err) {
    if (options.signal?.aborted) throw err;
    lost();
    throw new ApiError({ status: 0, code: 'unreachable', message: unreachable });
  }
}

async function readFailure(response: Response): Promise<Failure> {
  const failure: Failure = { status: response.status, message: `The node answered ${response.status} ${response.statusText}`.trim() + '.' };
  const wait = Number(response.headers.get('Retry-After'));
  if (wait > 0) failure.retryAfter = wait;
  const body = (await response.text().catch(() => '')).slice(0, maxErrorLength);
  try {
    return { ...failure, ...errorFields(JSON.parse(body)) };
  } catch {
    return failure;
  }
}

/** errorFields reads OpenAI's error object and Ollama's error string. */
export function errorFields(body: unknown): Partial<Failure> {
  const error = (body as { error?: unknown } | null)?.error;
  if (typeof error === 'string' && error !== '') return { message: error };
  if (typeof error !== 'object' || error === null) return {};
  const { message, code } = error as { message?: unknown; code?: unknown };
  return {
    ...(typeof message === 'string' && message !== '' ? { message } : {}),
    ...(typeof code === 'string' && code !== '' ? { code } : {}),
  };
}
