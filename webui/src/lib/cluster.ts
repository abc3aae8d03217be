// The cluster as this page sees it, from one stream of events of the node that
// serves the page: what happens on all nodes, and every two seconds the state
// of each.

import { computed, signal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { call, toFailure, type Failure } from './api';
import { self } from './nodes';
import { Requests } from './requests';
import { readEvents } from './sse';
import { rates, readEvent, type Member, type NodeEvent, type NodeStatus, type Rates } from './status';

export { at, self } from './nodes';

/** Most events that are kept for the list of what happened. */
export const eventsKept = 200;
/** Looks at a node that are kept for its curve: two minutes. */
export const curveLength = 60;
const reconnectMilliseconds = 2000;
/** How long the stream stays open when no page needs it, so that going from page to page does not open it anew. */
const lingerMilliseconds = 15_000;
/** A node that told nothing for so long is shown as silent. It tells its state every 2 s. */
export const silentMilliseconds = 7000;

export interface NodeLook {
  at: number; // performance.now() when it came
  status: NodeStatus;
  rates: Rates | null;
  curve: Rates[]; // oldest first
  behind: number; // ms that its clock is behind this browser's
}

export const looks = signal<ReadonlyMap<string, NodeLook>>(new Map());
export const events = signal<readonly NodeEvent[]>([]); // the latest first
export const streamFailure = signal<Failure | null>(null);
export const requests = new Requests();
/** Changes whenever a request does. */
export const requestsVersion = signal(0);
/** Advances every second while a page is live: what depends on the time reads it. */
export const tick = signal(0);

/** The state of the node that serves the page. */
export const here = computed(() => looks.value.get(self.value)?.status ?? null);

let opened = 0; // performance.now() when the stream was

export interface SeenNode {
  member: Member;
  look: NodeLook | null; // null: it tells nothing
  silent: boolean; // it should tell something
}

/** nodesOf puts the list of members, as the node of this page sees them, together with what each tells of itself. since is when the stream was opened: all need a moment to tell. */
export function nodesOf(status: NodeStatus | null, seen: ReadonlyMap<string, NodeLook>, now: number, since = -Infinity): SeenNode[] {
  if (status === null) return [];
  const { node } = status;
  const alone: Member = { id: node.id, name: node.name, addr: '', state: node.ready ? 'ready' : 'alive', role: node.role, version: node.version, models: null };
  const members = status.cluster?.members?.length ? status.cluster.members : [alone];
  return members.map((member) => {
    const look = seen.get(member.id) ?? null;
    const there = member.state !== 'failed' && member.state !== 'left';
    return { member, look: there ? look : null, silent: there && now - Math.max(since, look?.at ?? -Infinity) > silentMilliseconds };
  });
}

export const nodes = computed<SeenNode[]>(() => {
  void tick.value;
  return nodesOf(here.value, looks.value, performance.now(), opened);
});

/** Names of nodes by their ids. */
export const names = computed<ReadonlyMap<string, string>>(() => new Map(here.value?.cluster?.members?.map(({ id, name }) => [id, name]) ?? [[self.value, here.value?.node.name ?? '']]));

export function nameOfNode(id: string): string {
  return names.value.get(id) || id.slice(0, 8);
}

/** take puts one event where it belongs. */
export function take(event: NodeEvent): void {
  switch (event.kind) {
    case 'hello':
      self.value = event.node;
      opened = performance.now();
      return;
    case 'status':
      takeStatus(event);
      return;
  }
  if (requests.take(event)) requestsChanged();
  if (quiet.has(event.kind) || events.value.some((old) => old.time === event.time && old.kind === event.kind && old.node === event.node)) return;
  events.value = [event, ...events.value].sort((a, b) => Date.parse(b.time) - Date.parse(a.time)).slice(0, eventsKept);
}

/** How long changes of requests are gathered before they are shown: many may come at once. */
const gatherMilliseconds = 100;
let gathering = false;

function requestsChanged(): void {
  if (gathering) return;
  gathering = true;
  setTimeout(() => {
    gathering = false;
    requestsVersion.value++;
  }, gatherMilliseconds);
}

/** What the list of requests tells better. */
const quiet = new Set(['request_placed', 'kv_way_chosen', 'request_finished']);

function takeStatus({ node, time, data }: NodeEvent): void {
  const status = data as unknown as NodeStatus;
  if (typeof status.node?.id !== 'string' || status.node.id !== node) return;
  const at = performance.now();
  const before = looks.value.get(node);
  // A node that was started anew counts from zero.
  const grown = before && (before.status.node.uptime_seconds ?? 0) <= (status.node.uptime_seconds ?? 0) ? rates(before, { at, status }) : null;
  const curve = grown ? [...(before?.curve ?? []), grown].slice(-curveLength) : [];
  const next = new Map(looks.value);
  next.set(node, { at, status, rates: grown, curve, behind: Date.now() - (Date.parse(time) || Date.now()) });
  if (node === self.value) {
    const known = new Set(status.cluster?.members?.map(({ id }) => id) ?? [node]);
    for (const id of next.keys()) if (!known.has(id) && id !== node) next.delete(id);
  }
  looks.value = next;
}

let users = 0;
let controller: AbortController | null = null;
let linger: ReturnType<typeof setTimeout> | undefined;

/** useLive keeps the stream open as long as a page that needs it is shown and can be seen. */
export function useLive(): void {
  useEffect(() => {
    users++;
    clearTimeout(linger);
    open();
    const timer = setInterval(() => {
      if (!document.hidden) tick.value++;
    }, 1000);
    return () => {
      users--;
      clearInterval(timer);
      if (users === 0) linger = setTimeout(close, lingerMilliseconds);
    };
  }, []);
}

document.addEventListener('visibilitychange', () => {
  if (document.hidden) close();
  else if (users > 0) open();
});

function open(): void {
  if (controller !== null || document.hidden) return;
  controller = new AbortController();
  void follow(controller.signal);
}

function close(): void {
  controller?.abort();
  controller = null;
}

async function follow(signal: AbortSignal): Promise<void> {
  while (!signal.aborted) {
    // A cable that is pulled ends no connection; the silence tells.
    const attempt = new AbortController();
    let heard = performance.now();
    const watchdog = setInterval(() => {
      if (performance.now() - heard > silentMilliseconds) attempt.abort();
    }, 1000);
    try {
      const response = await call('/admin/cluster/events', { background: true, signal: AbortSignal.any([signal, attempt.signal]) });
      streamFailure.value = null;
      if (response.body) {
        for await (const { data } of readEvents(response.body)) {
          heard = performance.now();
          const event = readEvent(data);
          if (event) take(event);
        }
      }
    } catch (err) {
      if (signal.aborted) return;
      if (!attempt.signal.aborted) streamFailure.value = toFailure(err);
    } finally {
      clearInterval(watchdog);
    }
    // After a silence it is asked at once: if it does not answer, the page says so.
    if (!attempt.signal.aborted) await new Promise((resolve) => setTimeout(resolve, reconnectMilliseconds));
  }
}
