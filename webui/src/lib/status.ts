// What /admin/status tells, and rates that follow from two looks at it.

export interface NodeStatus {
  node: { id: string; name: string; role: string; version: string; ready: boolean; reason?: string; uptime_seconds?: number };
  requests: { running: number; queued: number };
  cluster?: Cluster;
  open_streams?: number;
  models?: ModelStatus[];
  devices?: Device[] | null;
}

export interface Cluster {
  leader: string; // id; "" is none
  quorum: boolean;
  reason?: string; // why there is no quorum
  members: Member[];
  problems?: string[];
  links?: { id: string; transport: string; rtt_ms: number }[];
}

export interface Member {
  id: string;
  name: string;
  addr: string;
  state: string; // ready, alive (not ready), draining, failed, left
  role: string;
  version: string;
  models: string[] | null;
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
}

export interface Device {
  name?: string;
  description?: string;
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
  kind: string;
  data: Record<string, unknown>;
}

/** readEvent checks the data of one event of /admin/events; null if it is none. */
export function readEvent(json: string): NodeEvent | null {
  try {
    const value = JSON.parse(json) as Partial<NodeEvent> | null;
    if (typeof value?.kind !== 'string' || typeof value.data !== 'object' || value.data === null) return null;
    return { time: typeof value.time === 'string' ? value.time : '', kind: value.kind, data: value.data };
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
