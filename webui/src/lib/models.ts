// The models of this node, as the API lists them.

import { signal } from '@preact/signals';
import { call, getJSON, toFailure, type Failure } from './api';
import { at } from './nodes';
import { bytes } from './format';
import { readLines } from './sse';

export interface Model {
  name: string;
  bytes?: number;
  parameters?: string; // "135M"
  quantization?: string;
  family?: string;
  contextLength?: number;
  capabilities?: string[];
  source?: string; // "tandem", "ollama", "huggingface", "file", "built-in"
  loaded: boolean;
  memoryBytes?: number; // while loaded
  needsBytes?: number; // when loaded, as estimated
  expires?: number; // ms since 1970, while loaded
}

interface ListAnswer {
  data: { id: string; context_length?: number; capabilities?: string[]; source?: string; memory_bytes?: number }[];
}

interface OllamaModel {
  name: string;
  size?: number;
  size_vram?: number;
  expires_at?: string;
  details?: { family?: string; parameter_size?: string; quantization_level?: string };
  capabilities?: string[];
}

interface OllamaAnswer {
  models: OllamaModel[] | null;
}

/** null until the list was read for the first time. */
export const models = signal<Model[] | null>(null);
export const modelsFailure = signal<Failure | null>(null);

/** loadModels reads the list again. It does not throw: see modelsFailure. */
export async function loadModels(): Promise<void> {
  try {
    const [list, tags, running] = await Promise.all([
      getJSON<ListAnswer>('/v1/models', { background: true }),
      getJSON<OllamaAnswer>('/api/tags', { background: true }),
      getJSON<OllamaAnswer>('/api/ps', { background: true }),
    ]);
    models.value = merge(list, tags, running);
    modelsFailure.value = null;
  } catch (err) {
    modelsFailure.value = toFailure(err);
  }
}

export function merge(list: ListAnswer, tags: OllamaAnswer, running: OllamaAnswer): Model[] {
  const tagged = byName(tags.models ?? []);
  const loaded = byName(running.models ?? []);
  return list.data.map((entry) => {
    const name = entry.id;
    const tag = tagged.get(name);
    const run = loaded.get(name);
    const expires = Date.parse(run?.expires_at ?? '');
    return {
      name,
      bytes: tag?.size,
      parameters: tag?.details?.parameter_size,
      quantization: tag?.details?.quantization_level,
      family: tag?.details?.family,
      contextLength: entry.context_length,
      capabilities: entry.capabilities ?? tag?.capabilities,
      source: entry.source,
      loaded: run !== undefined,
      memoryBytes: run?.size,
      needsBytes: entry.memory_bytes,
      expires: Number.isNaN(expires) ? undefined : expires,
    };
  });
}

/** Ollama adds ":latest" to names without a tag; the same model may be listed either way. */
function byName(list: OllamaModel[]): Map<string, OllamaModel> {
  const all = new Map<string, OllamaModel>();
  for (const model of list) {
    all.set(model.name, model);
    if (model.name.endsWith(':latest')) all.set(model.name.slice(0, -':latest'.length), model);
  }
  return all;
}

const places: Record<string, string> = { ollama: 'read from Ollama', huggingface: 'read from the Hugging Face cache', file: 'read from a file', 'built-in': 'part of tandem' };

/** placeOf says where the file of a model is, if it is not this node's own; such a file cannot be deleted from here. */
export function placeOf({ source }: Model): string | null {
  return source === undefined ? null : (places[source] ?? null);
}

/** Models that can chat; a model that does not tell is taken as one that can. */
export function canChat(model: Model): boolean {
  return model.capabilities === undefined || model.capabilities.length === 0 || model.capabilities.includes('completion') || model.capabilities.includes('chat');
}

export interface PullProgress {
  status: string;
  total?: number;
  completed?: number;
}

/** pullModel lets a node download a model, or copy it from another node, and reports each step; it throws ApiError, or the abort of signal. */
export async function pullModel(node: string, name: string, signal: AbortSignal, progress: (step: PullProgress) => void): Promise<void> {
  const response = await call(at(node, '/api/pull'), { json: { model: name, stream: true }, signal });
  if (response.body === null) return;
  let last = '';
  for await (const line of readLines(response.body)) {
    const step = line as PullProgress & { error?: string };
    if (step.error) throw new Error(step.error);
    last = step.status;
    progress(step);
  }
  if (last !== 'success') throw new Error('The download ended before it was complete. Pull again to go on where it stopped.');
}

export async function deleteModel(node: string, name: string): Promise<void> {
  await call(at(node, '/api/delete'), { method: 'DELETE', json: { model: name } });
}

export async function setLoaded(node: string, name: string, loaded: boolean): Promise<void> {
  await call(at(node, '/admin/models/load'), { json: { model: name, loaded } });
}

/** readModels asks one node for the models that it has itself. */
export async function readModels(node: string, signal?: AbortSignal): Promise<Model[]> {
  const options = { background: true, signal };
  const [list, tags, running] = await Promise.all([
    getJSON<ListAnswer>(at(node, '/v1/models'), options),
    getJSON<OllamaAnswer>(at(node, '/api/tags'), options),
    getJSON<OllamaAnswer>(at(node, '/api/ps'), options),
  ]);
  return merge(list, tags, running).filter(({ source }) => !source?.startsWith('node '));
}

/** ModelOnNodes is a model with the nodes that have it. */
export interface ModelOnNodes {
  name: string;
  on: { node: string; model: Model }[]; // at least one
}

/** modelsOnNodes is one list out of those of all nodes, by name. */
export function modelsOnNodes(lists: [node: string, models: Model[]][]): ModelOnNodes[] {
  const byName = new Map<string, ModelOnNodes>();
  for (const [node, models] of lists) {
    for (const model of models) {
      const known = byName.get(model.name) ?? { name: model.name, on: [] };
      known.on.push({ node, model });
      byName.set(model.name, known);
    }
  }
  return [...byName.values()].sort((a, b) => (a.name < b.name ? -1 : 1));
}

/** fitInWords says whether a model would fit into the memory of a node, as far as that is known. max is what all loaded models there may take, free what they leave. */
export function fitInWords(needs: number | undefined, free: number | undefined, max: number | undefined): { fits: 'yes' | 'later' | 'no'; words: string } | null {
  if (!needs || !max) return null;
  if (needs > max) return { fits: 'no', words: `needs about ${bytes(needs)}, more than the ${bytes(max)} that models may take` };
  if (free !== undefined && needs > free) return { fits: 'later', words: `needs about ${bytes(needs)}; another model is unloaded for it` };
  return { fits: 'yes', words: `needs about ${bytes(needs)}, fits` };
}
