// What /admin/status tells, and rates that follow from two looks at it.

export interface NodeStatus {
  node: { id: string; name: string; role: string; version: string; ready: boolean; reason?: string; uptime_seconds?: number };
  requests: { running: number; queued: number };
  cluster?: Cluster;
  open_streams?: number;
  models?: ModelStatus[];
  devices?: Device[] | null;
  memory_bytes?: number; // that all loaded models may take together
  kv?: { ram_bytes: number; disk_bytes: number; tokens_spared?: number };
  planner?: unknown; // see planner.ts
}

export interface Cluster {
  id?: string;
  leader: string; // id; "" is none
  voters?: string[] | null;
  quorum: boolean;
  reason?: string; // why there is no quorum
  members: Member[];
  problems?: string[];
  links?: Link[];
}

/** Link is the way of a node to another one. */
export interface Link {
  id: string; // of the other node
  transport: string; // quic, tcp
  addr?: string;
  rtt_ms: number;
  problem?: string;
  kv?: BulkWay[]; // on which KV comes from there
}

export interface BulkWay {
  transport: string;
  goodput: number; // bytes/s; 0: not measured
  used?: boolean;
  slow?: boolean;
  problem?: string;
}

export interface Member {
  id: string;
  name: string;
  addr: string;
  state: string; // ready, alive (not ready), draining, failed, left
  role: string;
  version: string;
  models: string[] | null;
  blocks?: number;
}

export interface ModelStatus {
  name: string;
  memory_bytes: number;
  context: number;
  slots: number;
  running: number;
  queued: number;
  kv_tokens: number;
  kv_cells: number;
  resident_tokens: number;
  prompt_tokens_computed: number;
  prompt_tokens_reused: number;
  tokens_generated: number;
  /** What was measured, by a self-benchmark and by requests; 0 is unknown. */
  rates?: { prefill_ms?: number; decode?: { streams: number; ms: number }[] | null; kv_bytes_per_token?: number };
}

export interface Device {
  name?: string;
  description?: string;
  kind?: string; // cpu, gpu, igpu, accel
  free_bytes?: number;
  total_bytes?: number;
}

/** Tokens per second between two looks. */
export interface Rates {
  generated: number;
  computed: number;
}

export interface Look {
  at: number; // ms
  status: NodeStatus;
}

/** rates compares two looks; null if there is nothing to compare. A model that was loaded anew counts from zero. */
export function rates(before: Look | null, now: Look): Rates | null {
  if (before === null || now.at <= before.at) return null;
  const old = new Map((before.status.models ?? []).map((model) => [model.name, model]));
  const grown = (field: 'tokens_generated' | 'prompt_tokens_computed') => {
    let sum = 0;
    for (const model of now.status.models ?? []) {
      const was = old.get(model.name)?.[field] ?? 0;
      sum += model[field] >= was ? model[field] - was : model[field];
    }
    return (sum * 1000) / (now.at - before.at);
  };
  return { generated: grown('tokens_generated'), computed: grown('prompt_tokens_computed') };
}

export interface NodeEvent {
  time: string;
  node: string; // id of the node that tells it; "" of an older version
  kind: string;
  data: Record<string, unknown>;
}

/** readEvent checks the data of one event of /admin/events; null if it is none. */
export function readEvent(json: string): NodeEvent | null {
  try {
    const value = JSON.parse(json) as Partial<NodeEvent> | null;
    if (typeof value?.kind !== 'string' || typeof value.data !== 'object' || value.data === null) return null;
    const text = (field: unknown) => (typeof field === 'string' ? field : '');
    return { time: text(value.time), node: text(value.node), kind: value.kind, data: value.data };
  } catch {
    return null;
  }
}

/** describe puts an event into words; kinds that this page does not know are shown with their fields. */
export function describe({ kind, data }: NodeEvent): string {
  const field = (name: string) => String(data[name] ?? '');
  const number = (name: string) => (typeof data[name] === 'number' ? data[name] : 0);
  switch (kind) {
    case 'model_loading':
      return `Loading ${field('model')}`;
    case 'model_loaded':
      return `Loaded ${field('model')} in ${number('seconds').toFixed(1)} s`;
    case 'model_unloaded':
      return `Unloaded ${field('model')}: ${field('reason')}`;
    case 'model_failed':
      return `Could not load ${field('model')}: ${field('error')}`;
    case 'request_placed':
      return `Request for ${field('model')} placed on ${field('decode')}: ${field('reason')}`;
    case 'request_moved':
      return `Request for ${field('model')} moved from ${field('from')} to ${field('to')} after ${number('tokens')} tokens: ${field('reason')}`;
    case 'request_refused':
      return `${field('node')} did not take a request: ${field('reason')}`;
    case 'member_changed':
      return `${field('name')} is ${field('state')} (${field('role')})`;
    case 'request_finished':
      return `Request for ${field('model') || 'no model'} ended (${field('outcome')}): ${number('prompt_tokens')} in, ${number('cached_tokens')} of them cached, ${number('completion_tokens')} out, ${number('seconds').toFixed(1)} s`;
    case 'request_parked':
      return `A request for ${field('model')} gave up its slot after ${number('tokens')} tokens, because its client does not read`;
    case 'kv_way_chosen':
      return `How to get ${number('prompt_tokens')} tokens of KV: ${field('reason')}`;
    case 'kv_moved':
      return data.outcome === 'complete'
        ? `${number('blocks')} KV blocks came from ${field('from')} in ${number('seconds').toFixed(2)} s${field('transport') && ` over ${field('transport')}`}`
        : `KV from ${field('from')}: ${number('blocks')} of ${number('wanted')} blocks came (${field('outcome').replaceAll('_', ' ')})`;
    case 'kv_ready':
      return data.reason ? `KV of ${field('model')} is not kept: ${field('reason')}` : `KV of ${field('model')} is kept in blocks of ${number('block_tokens')} tokens`;
    case 'kv_failed':
      return `KV of ${field('model')} could not be copied: ${field('error')}`;
    case 'engine_retried':
      return `A request for ${field('model')} is computed once more: ${field('error')}`;
    case 'admin_called':
      return `${field('key') || 'Somebody without a key'} at ${field('from')} called ${field('method')} ${field('route')} (${number('status')})`;
    case 'role_draining':
      return `Finishes what it does as ${field('from')}, to be ${field('to')}: ${field('reason')}`;
    case 'role_taken':
      return `Is ${field('to')} now: ${field('reason')}`;
    case 'self_measured':
      return `Measured ${field('model')}: reads ${number('prefill_tokens_per_second').toFixed(0)} and writes ${number('decode_tokens_per_second').toFixed(0)} tokens/s`;
    case 'leader_changed':
      return data.quorum ? 'Another node leads the cluster' : `Nobody leads the cluster${field('reason') && `: ${field('reason')}`}`;
    case 'pull_finished':
      return data.error ? `Could not pull ${field('ref')}: ${field('error')}` : `Pulled ${field('ref')}`;
    case 'ready':
      return data.ready ? 'This node can answer' : `This node cannot answer: ${field('reason')}`;
    default:
      return `${kind.replaceAll('_', ' ')} ${Object.entries(data)
        .map(([name, value]) => `${name}=${typeof value === 'object' ? JSON.stringify(value) : String(value)}`)
        .join(' ')}`;
  }
}
