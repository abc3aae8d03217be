import { useSignal, type Signal } from '@preact/signals';
import { useEffect, useRef } from 'preact/hooks';
import { call, getJSON, toFailure, type Failure } from '../lib/api';
import { bytes, count, rate, seconds } from '../lib/format';
import { usePoll } from '../lib/poll';
import { readEvents } from '../lib/sse';
import { describe, rates, readEvent, type Cluster, type Look, type ModelStatus, type NodeEvent, type NodeStatus, type Rates } from '../lib/status';
import { Page } from './Page';

const refreshMilliseconds = 2000;
const reconnectMilliseconds = 5000;
const eventsKept = 100;

/** StatusPage shows what this node does right now. */
export function StatusPage() {
  const before = useRef<Look | null>(null);
  const now = useSignal<{ status: NodeStatus; rates: Rates | null } | null>(null);
  const failure = useSignal<Failure | null>(null);
  const events = useEvents();
  usePoll(async (signal) => {
    try {
      const status = await getJSON<NodeStatus>('/admin/status', { background: true, signal });
      const look = { at: performance.now(), status };
      now.value = { status, rates: rates(before.current, look) };
      before.current = look;
      failure.value = null;
    } catch (err) {
      if (!signal.aborted) failure.value = toFailure(err);
    }
  }, refreshMilliseconds);
  return (
    <Page title="Status">
      {failure.value && (
        <p class="note bad" role="alert">
          {failure.value.message}
        </p>
      )}
      {now.value && <NodeSummary {...now.value} />}
      {now.value?.status.cluster && <Nodes cluster={now.value.status.cluster} self={now.value.status.node.id} />}
      {now.value?.status.models?.map((model) => (
        <ModelRow key={model.name} model={model} />
      ))}
      {events.value.length > 0 && <EventList events={events.value} />}
    </Page>
  );
}

function NodeSummary({ status, rates }: { status: NodeStatus; rates: Rates | null }) {
  const { node, requests, devices } = status;
  const hardware = (devices ?? []).map((device) => device.description || device.name).filter(Boolean);
  return (
    <>
      <p class="row">
        <span class={node.ready ? 'badge on' : 'badge off'}>{node.ready ? 'ready' : 'not ready'}</span>
        <strong>{node.name}</strong>
        <span class="hint">
          {node.role} · version {node.version}
          {node.uptime_seconds !== undefined && ` · up ${seconds(node.uptime_seconds)}`}
        </span>
      </p>
      {!node.ready && node.reason && <p class="note warn">{node.reason}</p>}
      <dl class="figures">
        <Figure name="Running" value={count(requests.running)} />
        <Figure name="Queued" value={count(requests.queued)} />
        <Figure name="Writing, tokens/s" value={rates ? rate(rates.generated) : '–'} kind="decode" />
        <Figure name="Reading, tokens/s" value={rates ? rate(rates.computed) : '–'} kind="prefill" />
      </dl>
      {hardware.length > 0 && <p class="hint">Computes on {hardware.join(', ')}.</p>}
    </>
  );
}

/** Nodes shows the cluster, if there is more than this node, and what is wrong with it. */
function Nodes({ cluster, self }: { cluster: Cluster; self: string }) {
  const problems = cluster.problems ?? [];
  if (cluster.members.length < 2 && problems.length === 0) return null;
  const links = new Map((cluster.links ?? []).map((link) => [link.id, link]));
  return (
    <section class="card" aria-label="Nodes">
      <h2>Nodes</h2>
      {!cluster.quorum && cluster.reason && <p class="note warn">{cluster.reason}</p>}
      {problems.map((problem) => (
        <p key={problem} class="note warn">
          {problem}
        </p>
      ))}
      {cluster.members.map((member) => {
        const link = links.get(member.id);
        const models = member.models?.length ?? 0;
        return (
          <p key={member.id} class="row">
            <span class={member.state === 'ready' ? 'badge on' : 'badge off'}>{member.state}</span>
            <strong class="wrap">{member.name}</strong>
            <span class="hint wrap">
              {[
                member.role,
                member.id === self ? 'this node' : link ? `${link.transport}, ${link.rtt_ms.toFixed(1)} ms` : '',
                member.addr,
                member.id === cluster.leader ? 'leads' : '',
                models === 1 ? '1 model' : `${count(models)} models`,
              ]
                .filter(Boolean)
                .join(' · ')}
            </span>
          </p>
        );
      })}
    </section>
  );
}

function Figure({ name, value, kind = '' }: { name: string; value: string; kind?: string }) {
  return (
    <div class={`figure ${kind}`}>
      <dt>{name}</dt>
      <dd>{value}</dd>
    </div>
  );
}

function ModelRow({ model }: { model: ModelStatus }) {
  const seen = model.prompt_tokens_computed + model.prompt_tokens_reused;
  const reused = seen > 0 ? Math.round((100 * model.prompt_tokens_reused) / seen) : 0;
  return (
    <section class="card">
      <h2 class="wrap">{model.name}</h2>
      <p class="hint">
        {bytes(model.memory_bytes)} in memory · context {count(model.context)} · {model.running} of {model.slots} slots busy · {model.queued} queued
      </p>
      <p class="hint">
        KV cache: {count(model.kv_tokens)} tokens in use and {count(model.resident_tokens)} kept of {count(model.kv_cells)} · {reused} % of all prompt tokens were not computed again
      </p>
    </section>
  );
}

function EventList({ events }: { events: NodeEvent[] }) {
  return (
    <section aria-label="Events">
      <h2>Events</h2>
      <ol class="events" tabIndex={0} role="list">
        {events.map((event, i) => (
          <li key={events.length - i}>
            <time class="hint">{clock(event.time)}</time> {describe(event)}
          </li>
        ))}
      </ol>
    </section>
  );
}

function clock(time: string): string {
  const date = new Date(time);
  return Number.isNaN(date.getTime()) ? '' : date.toLocaleTimeString('en-GB');
}

/** useEvents follows /admin/events, the latest event first, and connects again when the stream ends. */
function useEvents(): Signal<NodeEvent[]> {
  const events = useSignal<NodeEvent[]>([]);
  useEffect(() => {
    const controller = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    const follow = async () => {
      try {
        const response = await call('/admin/events', { background: true, signal: controller.signal });
        if (response.body) for await (const { data } of readEvents(response.body)) take(data);
      } catch {
        // The status above says what is wrong.
      }
      if (!controller.signal.aborted) timer = setTimeout(follow, reconnectMilliseconds);
    };
    const take = (data: string) => {
      const event = readEvent(data);
      if (event) events.value = [event, ...events.value].slice(0, eventsKept);
    };
    void follow();
    return () => {
      controller.abort();
      clearTimeout(timer);
    };
  }, []);
  return events;
}
