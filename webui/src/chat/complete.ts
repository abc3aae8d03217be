// One streamed chat completion.

import { ApiError, call, errorFields } from '../lib/api';
import { readEvents } from '../lib/sse';
import type { Params } from './types';

export interface Turn {
  role: 'system' | 'user' | 'assistant';
  content: string;
}

export interface CompletionRequest {
  model: string;
  turns: Turn[];
  params: Params;
}

/** What the response headers tell before the first piece. */
export interface Opening {
  node?: string;
  prefill?: string;
  reason?: string;
  warning?: string;
}

export interface Usage {
  promptTokens: number;
  cachedTokens?: number;
  completionTokens: number;
}

export interface CompletionEnd {
  finish?: string;
  usage?: Usage;
}

export interface CompletionListener {
  opened(opening: Opening): void;
  piece(content: string, reasoning: string): void;
}

/**
 * complete streams one answer to the listener. It throws ApiError for a
 * refusal, an error event, or a stream that ends without a finish reason;
 * pieces that came before stay with the listener. Aborting the signal closes
 * the connection, which makes the node free the request's slot.
 */
export async function complete(request: CompletionRequest, signal: AbortSignal, listener: CompletionListener): Promise<CompletionEnd> {
  const response = await call('/v1/chat/completions', { json: requestBody(request), signal });
  listener.opened(opening(response.headers));
  const end: CompletionEnd = {};
  if (response.body === null) throw cut();
  try {
    for await (const event of readEvents(response.body)) {
      if (event.data === '[DONE]') break;
      readChunk(event.data, end, listener);
    }
  } catch (err) {
    if (err instanceof ApiError || signal.aborted) throw err;
    throw cut();
  }
  if (end.finish === undefined) throw cut();
  return end;
}

function requestBody({ model, turns, params }: CompletionRequest): unknown {
  const { system, ...rest } = params;
  const messages = system ? [{ role: 'system', content: system }, ...turns] : turns;
  return { model, messages, stream: true, stream_options: { include_usage: true }, ...rest };
}

function opening(headers: Headers): Opening {
  const get = (name: string) => headers.get(name) ?? undefined;
  return { node: get('X-Tandem-Node'), prefill: get('X-Tandem-Prefill'), reason: get('X-Tandem-Reason'), warning: get('X-Tandem-Warning') };
}

interface Chunk {
  error?: unknown;
  choices?: { delta?: { content?: string | null; reasoning_content?: string | null }; finish_reason?: string | null }[];
  usage?: { prompt_tokens: number; completion_tokens: number; prompt_tokens_details?: { cached_tokens?: number } | null } | null;
}

function readChunk(data: string, end: CompletionEnd, listener: CompletionListener): void {
  const chunk = parseChunk(data);
  if (chunk.error) throw new ApiError({ status: 200, message: 'The node reported an error.', ...errorFields(chunk) });
  const choice = chunk.choices?.[0];
  const content = choice?.delta?.content ?? '';
  const reasoning = choice?.delta?.reasoning_content ?? '';
  if (content !== '' || reasoning !== '') listener.piece(content, reasoning);
  if (choice?.finish_reason) end.finish = choice.finish_reason;
  if (chunk.usage) {
    end.usage = {
      promptTokens: chunk.usage.prompt_tokens,
      cachedTokens: chunk.usage.prompt_tokens_details?.cached_tokens,
      completionTokens: chunk.usage.completion_tokens,
    };
  }
}

function parseChunk(data: string): Chunk {
  try {
    return JSON.parse(data) as Chunk;
  } catch {
    throw new ApiError({ status: 200, code: 'bad_event', message: 'The node sent an event that is not JSON.' });
  }
}

function cut(): ApiError {
  return new ApiError({ status: 0, code: 'stream_cut', message: 'The connection ended before the answer was complete.' });
}
