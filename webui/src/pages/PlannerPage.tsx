import { useSignal } from '@preact/signals';
import { getJSON, toFailure } from '../lib/api';
import { here, nameOfNode, nodes, streamFailure, useLive, type SeenNode } from '../lib/cluster';
import { milliseconds, rate } from '../lib/format';
import { readKV } from '../lib/kv';
import { readPlanner, type PlannerView } from '../lib/planner';
import { usePoll } from '../lib/poll';
import { exampleTokens, goodputBetween, kvBytesOf, speedsOf, splitInWords, splitOf, togetherInWords, type Speed } from '../lib/worth';
import { announce } from '../ui/announce';
import { Page } from './Page';

const refreshMilliseconds = 10_000;

/** PlannerPage shows what the cluster aims at, its plan, and whether the second box is worth it. */
export function PlannerPage() {
  useLive();
  const status = here.value;
  const planner = readPlanner(status?.planner);
  return (
    <Page title="Planner">
      {streamFailure.value && (
        <p class="note bad" role="alert">
          {streamFailure.value.message}
        </p>
      )}
      {planner ? <Plan planner={planner} /> : status && <p class="note">There is no plan yet: every node has the role that it was started with.</p>}
      <Worth seen={nodes.value} />
      <Settings />
    </Page>
  );
}

function Plan({ planner: { mode, roles, plan, reasons, advice, facts, forecast, others, history } }: { planner: PlannerView }) {
  return (
    <>
      <section class="card" aria-label="Plan">
        <div class="row between">
          <h2>Plan</h2>
          {mode && <span class="badge">{mode}</span>}
        </div>
        {roles.length === 0 && plan.length === 0 && <p>{history.length > 0 ? 'All nodes are hybrid.' : 'There is no plan yet: every node has the role that it was started with.'}</p>}
        {roles.length > 0 && (
          <table class="parts">
            <thead>
              <tr>
                <th scope="col">Node</th>
                <th scope="col">Role</th>
              </tr>
            </thead>
            <tbody>
              {roles.map(({ node, role }) => (
                <tr key={node}>
                  <th scope="row">{nameOfNode(node)}</th>
                  <td>{role}</td>
                </tr>
              ))}
            </tbody>
          </table>
        )}
        <Pairs pairs={plan} />
        {advice.length > 0 && <p>It advises: {advice.map(({ node, role }) => `${nameOfNode(node)} ${role}`).join(', ')}.</p>}
        {reasons.map((reason) => (
          <p key={reason} class="reason">
            {reason}
          </p>
        ))}
      </section>
      {facts.length > 0 && (
        <section class="card" aria-label="This node">
          <h2>This node</h2>
          <Pairs pairs={facts} />
        </section>
      )}
      {forecast.length > 0 && (
        <section class="card" aria-label="Forecast">
          <h2>Forecast</h2>
          <Pairs pairs={forecast} />
          {others.length > 0 && (
            <>
              <h3>The best other plan</h3>
              <Pairs pairs={others} />
            </>
          )}
        </section>
      )}
      {history.length > 0 && (
        <section aria-label="History">
          <h2>History</h2>
          <ol class="events" tabIndex={0} role="list">
            {history.map(({ time, text }, i) => (
              <li key={time + i}>
                <time class="hint" dateTime={time}>
                  {stamp(time)}
                </time>
                {text}
              </li>
            ))}
          </ol>
        </section>
      )}
    </>
  );
}

function Pairs({ pairs }: { pairs: [string, string][] }) {
  if (pairs.length === 0) return null;
  return (
    <dl class="pairs">
      {pairs.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}

function stamp(time: string): string {
  const date = new Date(time);
  return Number.isNaN(date.getTime()) ? '' : date.toLocaleString('en-GB', { dateStyle: 'short', timeStyle: 'medium' });
}

/** Worth answers whether more boxes are worth it, model by model, from what was measured. */
function Worth({ seen }: { seen: SeenNode[] }) {
  const kvBytes = useSignal<ReadonlyMap<string, number>>(new Map()); // of one token, by model
  usePoll(async (signal) => {
    const { state } = await readKV('', signal);
    kvBytes.value = new Map((state.models ?? []).flatMap(({ name, block_bytes, block_tokens }) => (block_bytes && block_tokens ? [[name, block_bytes / block_tokens] as [string, number]] : [])));
  }, refreshMilliseconds);
  const speeds = speedsOf(seen);
  return (
    <section aria-label="Is the second box worth it?">
      <h2>Is the second box worth it?</h2>
      {seen.length < 2 && <p>There is only one node. When another one has joined and both have answered requests, this compares them with the figures that they measured.</p>}
      {seen.length > 1 && speeds.size === 0 && <p>No node has measured anything yet. Ask something on the Chat page, and look again.</p>}
      {seen.length > 1 && [...speeds].map(([model, list]) => <ModelWorth key={model} model={model} speeds={list} seen={seen} kvBytes={kvBytesOf(seen, model) || (kvBytes.value.get(model) ?? 0)} />)}
    </section>
  );
}

function ModelWorth({ model, speeds, seen, kvBytes }: { model: string; speeds: Speed[]; seen: SeenNode[]; kvBytes: number }) {
  // The pair that gains most: the slowest reader writes, and the fastest computes for it.
  const readers = speeds.filter(({ readMs }) => readMs > 0).sort((a, b) => a.readMs - b.readMs);
  const reader = readers[0];
  const writer = readers.at(-1);
  const split = reader && writer && reader !== writer ? splitOf(reader, writer, kvBytes, goodputBetween(seen, reader.id, writer.id)) : null;
  return (
    <div class="card">
      <h3 class="wrap">{model}</h3>
      <table class="parts">
        <caption>Measured on each node alone</caption>
        <thead>
          <tr>
            <th scope="col">Node</th>
            <th scope="col">Reading</th>
            <th scope="col">Writing</th>
          </tr>
        </thead>
        <tbody>
          {speeds.map(({ node, id, readMs, writeRate }) => (
            <tr key={id}>
              <th scope="row">{node}</th>
              <td>{readMs > 0 ? `${rate(1000 / readMs)} tokens/s` : 'not measured'}</td>
              <td>{writeRate > 0 ? `${rate(writeRate)} tokens/s` : 'not measured'}</td>
            </tr>
          ))}
        </tbody>
      </table>
      <p>
        <strong>Together:</strong> {togetherInWords(speeds)}
      </p>
      {split ? (
        <>
          <p>
            <strong>Split:</strong> {splitInWords(split)}
          </p>
          <table class="parts">
            <caption>
              The same {exampleTokens.toLocaleString('en')} tokens with other wires, computed from the figures above; on {split.writer} alone {milliseconds(split.aloneMs)}
            </caption>
            <thead>
              <tr>
                <th scope="col">Wire</th>
                <th scope="col">Split</th>
              </tr>
            </thead>
            <tbody>
              {split.whatIf.map(({ wire, splitMs }) => (
                <tr key={wire}>
                  <th scope="row">{wire}</th>
                  <td>
                    {milliseconds(splitMs)} {splitMs < split.aloneMs * 0.9 ? '(pays)' : '(does not pay)'}
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </>
      ) : (
        <p class="hint">Whether one node should compute prompts for another is not known yet: that takes two nodes that have both computed prompts of this model, and keep its KV.</p>
      )}
    </div>
  );
}

interface Setting {
  name: string;
  value: string;
  default: string;
  allowed: string;
}

/** Settings are what all nodes share: what the planner aims at, and how requests are placed. */
function Settings() {
  const settings = useSignal<Setting[] | null>(null);
  const quorum = useSignal(true);
  const failure = useSignal<string | null>(null);
  const take = (answer: { settings: Setting[] | null; quorum: boolean }) => {
    settings.value = answer.settings ?? [];
    quorum.value = answer.quorum;
    failure.value = null;
  };
  usePoll(async (signal) => {
    try {
      take(await getJSON('/admin/cluster/settings', { background: true, signal }));
    } catch (err) {
      if (!signal.aborted) failure.value = toFailure(err).message;
    }
  }, refreshMilliseconds);
  return (
    <section class="card" aria-label="Settings of the cluster">
      <h2>Settings of the cluster</h2>
      {failure.value && <p class="note warn">{failure.value}</p>}
      {!quorum.value && <p class="note warn">The nodes cannot agree now, so nothing can be changed.</p>}
      {settings.value?.map((setting) => (
        <SettingForm key={setting.name} setting={setting} off={!quorum.value} done={take} />
      ))}
    </section>
  );
}

const labels: Record<string, string> = {
  slo_ttft_ms: 'First token within, in ms',
  slo_itl_ms: 'Between two tokens at most, in ms',
  disagg: 'Prompts computed on other nodes',
  planner: 'Planner',
  preset: 'How requests are placed',
};

function SettingForm({ setting: { name, value, default: standard, allowed }, off, done }: { setting: Setting; off: boolean; done: (answer: { settings: Setting[]; quorum: boolean }) => void }) {
  const draft = useSignal<string | null>(null);
  const failure = useSignal<string | null>(null);
  const choices = allowed.startsWith('one of ') ? allowed.slice('one of '.length).split(', ') : null;
  const id = `setting-${name.replaceAll('_', '-')}`;
  const save = async (to: string) => {
    failure.value = null;
    try {
      done(await getJSON('/admin/cluster/settings', { json: { name, value: to } }));
      draft.value = null;
      announce(`${labels[name] ?? name} is ${to}`);
    } catch (err) {
      failure.value = toFailure(err).message;
    }
  };
  const submit = (event: Event) => {
    event.preventDefault();
    if (draft.value !== null && draft.value !== value) void save(draft.value);
  };
  return (
    <form class="setting" onSubmit={submit}>
      <label for={id}>{labels[name] ?? name}</label>
      <div class="row">
        {choices ? (
          <select id={id} value={draft.value ?? value} disabled={off} aria-describedby={`${id}-hint`} onChange={(event) => (draft.value = event.currentTarget.value)}>
            {choices.map((choice) => (
              <option key={choice}>{choice}</option>
            ))}
          </select>
        ) : (
          <input id={id} type="text" inputMode="numeric" value={draft.value ?? value} disabled={off} autocomplete="off" aria-describedby={`${id}-hint`} onInput={(event) => (draft.value = event.currentTarget.value)} />
        )}
        <button type="submit" class="button" disabled={off || draft.value === null || draft.value === value} aria-label={`Save ${labels[name] ?? name}`}>
          Save
        </button>
      </div>
      <p id={`${id}-hint`} class="hint">
        <code>{name}</code>: {allowed}; by default {standard || 'empty'}
      </p>
      {failure.value && (
        <p class="note bad" role="alert">
          {failure.value}
        </p>
      )}
    </form>
  );
}
