import { useSignal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { call, getJSON, toFailure } from '../lib/api';
import { at, events, here, nameOfNode, nodes, self, streamFailure, useLive, type SeenNode } from '../lib/cluster';
import { diagnose, gigabits, hardwareOf, linksOf, memoryOf, type Finding, type LinkRow } from '../lib/diagnosis';
import { count, plural, rate, seconds } from '../lib/format';
import { describe, type Cluster, type ModelStatus, type NodeEvent } from '../lib/status';
import { CopyButton } from '../ui/CopyButton';
import { Curve } from '../ui/Curve';
import { confirm } from '../ui/Dialog';
import { Figure } from '../ui/Figure';
import { QRCode } from '../ui/QRCode';
import { announce } from '../ui/announce';
import { Page } from './Page';

/** ClusterPage shows the nodes, the ways between them and what is wrong, and how one more joins. */
export function ClusterPage() {
  useLive();
  const status = here.value;
  const seen = nodes.value;
  return (
    <Page title="Cluster">
      {streamFailure.value && (
        <p class="note bad" role="alert">
          {streamFailure.value.message}
        </p>
      )}
      {status === null ? (
        !streamFailure.value && <p class="hint">Asking the node…</p>
      ) : (
        <>
          <Diagnosis findings={diagnose(status, seen)} />
          <Totals seen={seen} />
          <section aria-label="Nodes">
            <h2>Nodes</h2>
            <ul class="cards nodes">
              {seen.map((node) => (
                <NodeCard key={node.member.id} seen={node} cluster={status.cluster} alone={seen.length < 2} />
              ))}
            </ul>
          </section>
          {seen.length > 1 && <Links rows={linksOf(seen)} />}
          {status.cluster && seen.length > 1 && <Agreement cluster={status.cluster} />}
          <Join />
        </>
      )}
      {events.value.length > 0 && <EventList events={events.value} several={seen.length > 1} />}
    </Page>
  );
}

const marks: Record<Finding['grade'], string> = { good: 'Good', warn: 'Note', bad: 'Problem' };

function Diagnosis({ findings }: { findings: Finding[] }) {
  return (
    <section aria-label="Diagnosis" class="diagnosis">
      <ul aria-live="polite">
        {findings.map(({ grade, text }) => (
          <li key={text} class={grade === 'good' ? 'note good' : grade === 'bad' ? 'note bad' : 'note warn'}>
            <span class="offscreen">{marks[grade]}: </span>
            {text}
          </li>
        ))}
      </ul>
    </section>
  );
}

function Totals({ seen }: { seen: SeenNode[] }) {
  const told = seen.filter(({ look, silent }) => look !== null && !silent);
  const sum = (pick: (node: SeenNode) => number) => told.reduce((total, node) => total + pick(node), 0);
  const rated = told.some(({ look }) => look?.rates);
  return (
    <dl class="figures">
      <Figure name="Running" value={count(sum(({ look }) => look!.status.requests.running))} />
      <Figure name="Queued" value={count(sum(({ look }) => look!.status.requests.queued))} />
      <Figure name="Writing, tokens/s" value={rated ? rate(sum(({ look }) => look!.rates?.generated ?? 0)) : '–'} kind="decode" />
      <Figure name="Reading, tokens/s" value={rated ? rate(sum(({ look }) => look!.rates?.computed ?? 0)) : '–'} kind="prefill" />
    </dl>
  );
}

/** stateInWords is the state of a node for people. */
function stateInWords({ member, silent }: SeenNode): string {
  if (silent) return 'silent';
  const words: Record<string, string> = { ready: 'ready', alive: 'not ready', draining: 'draining', failed: 'lost', left: 'gone' };
  return words[member.state] ?? member.state;
}

function NodeCard({ seen, cluster, alone }: { seen: SeenNode; cluster: Cluster | undefined; alone: boolean }) {
  const { member, look, silent } = seen;
  const status = look?.status;
  const memory = status ? memoryOf(status) : null;
  const hardware = status ? hardwareOf(status) : '';
  const lost = member.state === 'failed' || member.state === 'left';
  const facts = [
    member.role,
    member.id === self.value ? 'serves this page' : '',
    member.id === cluster?.leader ? 'leads' : cluster?.voters?.includes(member.id) && !alone ? 'votes' : '',
    `version ${member.version}`,
    status?.node.uptime_seconds !== undefined ? `up ${seconds(status.node.uptime_seconds)}` : '',
    member.addr,
  ];
  return (
    <li class={lost || silent ? 'card node lost' : 'card node'}>
      <div class="row between">
        <h3 class="wrap">{member.name}</h3>
        <span class={member.state === 'ready' && !silent ? 'badge on' : lost || silent ? 'badge off' : 'badge'}>{stateInWords(seen)}</span>
      </div>
      <p class="hint wrap">{facts.filter(Boolean).join(' · ')}</p>
      {hardware && <p class="hint wrap">Computes on {hardware}</p>}
      {memory && (
        <div class="tier">
          <span class="hint">Memory: {memory.words}</span>
          <progress aria-label={`Memory of ${member.name} that models take`} max={memory.max} value={Math.min(memory.used, memory.max)} />
        </div>
      )}
      {status && (
        <>
          <div class="speeds">
            <p>
              <span class="hint">Writing</span> <strong>{look?.rates ? rate(look.rates.generated) : '–'}</strong> <span class="hint">tokens/s</span>
              <Curve values={look?.curve.map(({ generated }) => generated) ?? []} kind="decode" />
            </p>
            <p>
              <span class="hint">Reading</span> <strong>{look?.rates ? rate(look.rates.computed) : '–'}</strong> <span class="hint">tokens/s</span>
              <Curve values={look?.curve.map(({ computed }) => computed) ?? []} kind="prefill" />
            </p>
          </div>
          <p class="hint">
            {plural(status.requests.running, 'request')} running, {count(status.requests.queued)} queued
          </p>
          {status.models?.map((model) => (
            <ModelLine key={model.name} model={model} />
          ))}
        </>
      )}
      {!alone && <NodeActions seen={seen} />}
    </li>
  );
}

function ModelLine({ model }: { model: ModelStatus }) {
  const known = model.prompt_tokens_computed + model.prompt_tokens_reused;
  const reused = known > 0 ? ` · ${Math.round((100 * model.prompt_tokens_reused) / known)} % of prompt tokens not computed again` : '';
  return (
    <p class="hint wrap">
      <strong>{model.name}</strong>: {model.running} of {plural(model.slots, 'slot')} busy, {model.queued} queued · KV {count(model.kv_tokens)} in use and {count(model.resident_tokens)} kept of {count(model.kv_cells)} tokens{reused}
    </p>
  );
}

const roles = ['hybrid', 'prefill', 'decode'];

function NodeActions({ seen: { member, silent } }: { seen: SeenNode }) {
  const busy = useSignal(false);
  const failure = useSignal<string | null>(null);
  const act = async (done: string, work: () => Promise<unknown>) => {
    busy.value = true;
    failure.value = null;
    try {
      await work();
      announce(done);
    } catch (err) {
      failure.value = toFailure(err).message;
    }
    busy.value = false;
  };
  const drain = async (on: boolean) => {
    const question = `${member.name} finishes what it has; new requests go to the other nodes until you resume it.`;
    if (on && !(await confirm('Drain this node?', question, 'Drain'))) return;
    await act(on ? `${member.name} drains` : `${member.name} takes requests again`, () => call(at(member.id, '/admin/cluster/drain'), { json: { on } }));
  };
  const remove = async () => {
    const question = `The others stop waiting for ${member.name} and go on without its vote. When it is started again, it joins again.`;
    if (!(await confirm('Remove this node?', question, 'Remove'))) return;
    await act(`${member.name} is removed`, () => removeEverywhere(member.id));
  };
  const change = (role: string) => act(role === 'auto' ? `${member.name} follows the plan again` : `${member.name} is ${role}`, () => call(at(member.id, '/admin/cluster/role'), { json: { role } }));
  const there = member.state !== 'failed' && member.state !== 'left';
  return (
    <>
      {failure.value && (
        <p class="note bad" role="alert">
          {failure.value}
        </p>
      )}
      <div class="row">
        {there && (
          <>
            <button type="button" class="button" disabled={busy.value || silent} onClick={() => drain(member.state !== 'draining')} aria-label={`${member.state === 'draining' ? 'Resume' : 'Drain'} ${member.name}`}>
              {member.state === 'draining' ? 'Resume' : 'Drain…'}
            </button>
            <label class="field inline role">
              <span class="hint">Role</span>
              <select value={member.role} disabled={busy.value || silent} aria-label={`Role of ${member.name}`} onChange={(event) => change(event.currentTarget.value)}>
                {roles.map((role) => (
                  <option key={role}>{role}</option>
                ))}
                <option value="auto">auto (as started, or planned)</option>
              </select>
            </label>
          </>
        )}
        {member.state === 'failed' && (
          <button type="button" class="button" disabled={busy.value} onClick={remove} aria-label={`Remove ${member.name}`}>
            Remove…
          </button>
        )}
      </div>
    </>
  );
}

/** removeEverywhere removes a failed node at every node that answers; the first refusal is told. */
async function removeEverywhere(node: string): Promise<void> {
  const there = nodes.value.filter(({ member, silent }) => member.id !== node && member.state !== 'failed' && member.state !== 'left' && !silent);
  const done = await Promise.allSettled(there.map(({ member }) => call(at(member.id, '/admin/cluster/remove'), { json: { node } })));
  const failed = done.find((one) => one.status === 'rejected');
  if (failed) throw failed.reason as Error;
}

function Links({ rows }: { rows: LinkRow[] }) {
  return (
    <section aria-label="Links">
      <h2>Links</h2>
      {rows.length === 0 ? (
        <p class="hint">No way between nodes was measured yet.</p>
      ) : (
        <table role="table" class="links stacked">
          <thead role="rowgroup">
            <tr role="row">
              <th role="columnheader" scope="col">From</th>
              <th role="columnheader" scope="col">To</th>
              <th role="columnheader" scope="col">Requests over</th>
              <th role="columnheader" scope="col">Round trip</th>
              <th role="columnheader" scope="col">KV over</th>
              <th role="columnheader" scope="col">KV rate</th>
            </tr>
          </thead>
          <tbody role="rowgroup">
            {rows.map((row) => (
              <tr role="row" key={row.from + row.to}>
                <td role="cell" data-label="From">{nameOfNode(row.from)}</td>
                <td role="cell" data-label="To">{nameOfNode(row.to)}</td>
                <td role="cell" data-label="Requests over">{row.transport || '–'}</td>
                <td role="cell" data-label="Round trip">{row.rttMs > 0 ? `${row.rttMs.toFixed(row.rttMs < 9.95 ? 1 : 0)} ms` : '–'}</td>
                <td role="cell" data-label="KV over">{row.kv || '–'}</td>
                <td role="cell" data-label="KV rate">
                  {row.goodput > 0 ? gigabits(row.goodput) : 'not measured'}
                  {row.slow && <span class="badge off">slower than before</span>}
                  {row.others && <span class="hint"> ({row.others})</span>}
                  {row.problem && <span class="hint wrap"> last problem: {row.problem}</span>}
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
    </section>
  );
}

function Agreement({ cluster }: { cluster: Cluster }) {
  const voters = cluster.voters ?? [];
  const leader = cluster.leader ? `${nameOfNode(cluster.leader)} leads` : 'nobody leads';
  return (
    <section class="card" aria-label="Agreement">
      <h2>Agreement</h2>
      <p>
        {cluster.quorum ? `There is a quorum: ${leader}.` : `There is no quorum: ${leader}.`} {plural(voters.length, 'node')} {voters.length === 1 ? 'votes' : 'vote'}
        {voters.length > 0 && `: ${voters.map(nameOfNode).join(', ')}`}.{' '}
        {voters.length === 2 && 'With two voters, both must be there for changes; a third node would let one be missed.'}
      </p>
      {cluster.id && (
        <p class="hint wrap">
          Cluster <code>{cluster.id}</code>
        </p>
      )}
    </section>
  );
}

interface Joining {
  address: string;
  command: string;
  secret: boolean;
  secret_file?: string;
  reason?: string;
}

function Join() {
  const joining = useSignal<Joining | null>(null);
  const failure = useSignal<string | null>(null);
  const get = async (secret: boolean) => {
    try {
      joining.value = await getJSON<Joining>('/admin/cluster/join', secret ? { json: { secret } } : { background: true });
      failure.value = null;
    } catch (err) {
      failure.value = toFailure(err).message;
    }
  };
  useEffect(() => void get(false), []);
  const shown = joining.value;
  if (shown === null) return failure.value ? <p class="note bad">{failure.value}</p> : null;
  return (
    <section class="card" aria-label="One more node">
      <h2>One more node</h2>
      {shown.reason ? (
        <p class="note warn">{shown.reason}</p>
      ) : (
        <>
          <p>Put the program on another machine of this network and start it there with</p>
          <div class="code">
            <div class="code-head">
              <span>sh</span>
              <CopyButton text={shown.command} label="Copy the command" />
            </div>
            {/* It scrolls, so it must be reached by keyboard. */}
            <pre tabIndex={0} role="region" aria-label="Command that joins">
              <code>{shown.command}</code>
            </pre>
          </div>
          <div class="join">
            <QRCode text={shown.command} label="The command as a QR code" />
            <div class="join-words">
              {shown.secret ? (
                <p class="note warn">This shows the secret of the cluster: who has it can be a node, and read everything that nodes tell each other.</p>
              ) : (
                <p class="hint">
                  NODE_SECRET is the secret of this cluster, which the first node printed when it started
                  {shown.secret_file && (
                    <>
                      ; on the machine of this node it is in <code class="wrap">{shown.secret_file}</code>
                    </>
                  )}
                  .
                </p>
              )}
              <button type="button" class="button" onClick={() => get(!shown.secret)}>
                {shown.secret ? 'Hide the secret' : 'Show the secret'}
              </button>
              {failure.value && (
                <p class="note bad" role="alert">
                  {failure.value}
                </p>
              )}
            </div>
          </div>
        </>
      )}
    </section>
  );
}

function EventList({ events, several }: { events: readonly NodeEvent[]; several: boolean }) {
  return (
    <section aria-label="Events">
      <h2>Events</h2>
      <ol class="events" tabIndex={0} role="list">
        {events.map((event) => (
          <li key={event.time + event.kind + event.node}>
            <time class="hint" dateTime={event.time}>
              {clock(event.time)}
            </time>
            {several && <span class="hint">{nameOfNode(event.node)}: </span>}
            {describe(event)}
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
