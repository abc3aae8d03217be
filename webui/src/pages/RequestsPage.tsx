import { computed, signal, useSignal } from '@preact/signals';
import { looks, nameOfNode, requests, requestsVersion, self, streamFailure, tick, useLive } from '../lib/cluster';
import { bytes, count, milliseconds, plural, rate, seconds } from '../lib/format';
import { matches, partsOf, requestsKept, speedOf, wayInWords, when, type Filter, type Moved, type Part, type RequestView, type Score, type Way } from '../lib/requests';
import { wire } from '../lib/diagnosis';
import { Page } from './Page';

/** Rows that are drawn at first; more on demand, so that a phone stays quick. */
const rowsAtOnce = 50;

// What a person looks for stays while other pages are looked at.
const filter = signal<Filter>({ words: '', outcome: '' });
const held = signal<RequestView[] | null>(null); // the list as it was when it was held; null: live

const all = computed(() => {
  void requestsVersion.value;
  return requests.list();
});

const outcomes: [value: string, label: string][] = [
  ['', 'All'],
  ['running', 'Running'],
  ['stop', 'Ended by the model'],
  ['length', 'Ended by their limit'],
  ['tool_calls', 'Ended with a tool call'],
  ['cancelled', 'Left by the client'],
  ['error', 'Failed'],
  ['rejected', 'Refused'],
  ['failed', 'Not answered, for any reason'],
];

/** RequestsPage lists the latest requests of all nodes: where their time went, why they went there, and what the other ways would have cost. */
export function RequestsPage() {
  useLive();
  const shownRows = useSignal(rowsAtOnce);
  const list = held.value ?? all.value;
  const found = list.filter((view) => matches(view, filter.value, nameOfNode));
  const longest = Math.max(...found.slice(0, shownRows.value).map(lengthOf), 0.001);
  const running = list.filter(({ finished }) => finished === null).length;
  return (
    <Page title="Requests">
      {streamFailure.value && (
        <p class="note bad" role="alert">
          {streamFailure.value.message}
        </p>
      )}
      <form class="row filters" role="search" onSubmit={(event) => event.preventDefault()}>
        <label class="field">
          <span>Find</span>
          <input type="search" value={filter.value.words} placeholder="model, node, reason" autocomplete="off" spellcheck={false} onInput={(event) => (filter.value = { ...filter.value, words: event.currentTarget.value })} />
        </label>
        <label class="field">
          <span>Show</span>
          <select value={filter.value.outcome} onChange={(event) => (filter.value = { ...filter.value, outcome: event.currentTarget.value })}>
            {outcomes.map(([value, label]) => (
              <option key={value} value={value}>
                {label}
              </option>
            ))}
          </select>
        </label>
        <button type="button" class="button" aria-pressed={held.value !== null} onClick={() => (held.value = held.value === null ? list : null)}>
          {held.value === null ? 'Hold the list' : 'Go on live'}
        </button>
      </form>
      <p class="hint" role="status">
        {found.length === list.length ? plural(list.length, 'request') : `${count(found.length)} of ${plural(list.length, 'request')}`}
        {running > 0 && `, ${count(running)} running`}
        {held.value !== null && ', held'}
        {list.length >= requestsKept && `; older ones are not kept`}
      </p>
      {list.length === 0 ? <p>No request came yet. Ask something on the Chat page, or with a program of yours.</p> : <Legend />}
      <ul class="cards requests">
        {found.slice(0, shownRows.value).map((view) => (
          <RequestCard key={view.id} view={view} longest={longest} />
        ))}
      </ul>
      {found.length > shownRows.value && (
        <p>
          <button type="button" class="button" onClick={() => (shownRows.value += rowsAtOnce)}>
            Show more
          </button>
        </p>
      )}
    </Page>
  );
}

const legend: [kind: Part['kind'], label: string][] = [
  ['load', 'load'],
  ['queue', 'queue'],
  ['fetch', 'fetch'],
  ['transfer', 'transfer'],
  ['prefill', 'prefill'],
  ['decode', 'decode'],
];

function Legend() {
  return (
    <ul class="legend" aria-label="Colours">
      {legend.map(([kind, label]) => (
        <li key={kind}>
          <span class={`swatch part-${kind}`} aria-hidden="true" /> {label}
        </li>
      ))}
    </ul>
  );
}

/** Seconds that a request took, or takes so far. */
function lengthOf(view: RequestView): number {
  if (view.finished) return view.finished.seconds;
  void tick.value;
  if (view.at === 0) return 0;
  const behind = looks.value.get(view.node || self.value)?.behind ?? 0;
  return Math.max(0, (Date.now() - behind - view.at) / 1000);
}

function RequestCard({ view, longest }: { view: RequestView; longest: number }) {
  const open = useSignal(false);
  const { finished } = view;
  const length = lengthOf(view);
  const parts = partsOf(view);
  const title = view.decode ? `${view.model} on ${view.decode}` : `${view.model || 'No model'}, taken by ${nameOfNode(view.node) || 'a node'}`;
  const speed = speedOf(view);
  const facts = [
    clock(when(view)),
    finished ? outcomeInWords(finished.outcome, finished.status) : 'running',
    view.prompt > 0 && `${count(view.prompt)} in${finished && finished.cached > 0 ? ` (${count(finished.cached)} cached)` : ''}`,
    finished && finished.completion > 0 && `${count(finished.completion)} out`,
    finished && finished.ttft > 0 && `first token ${milliseconds(finished.ttft * 1000)}`,
    speed > 0 && `${rate(speed)} tokens/s`,
  ].filter(Boolean);
  return (
    <li class={finished && ['error', 'rejected'].includes(finished.outcome) ? 'card request failed' : 'card request'}>
      <div class="row between">
        <h2 class="wrap">{title}</h2>
        <span class="row">
          <span class={finished ? 'badge' : 'badge on'}>{length >= 1 ? seconds(length) : milliseconds(length * 1000)}</span>
          <button type="button" class="button" aria-expanded={open.value} aria-controls={`request-${view.id}`} onClick={() => (open.value = !open.value)} aria-label={`Details of the request of ${clock(when(view))} for ${title}`}>
            Details
          </button>
        </span>
      </div>
      <Waterfall parts={parts} length={length} longest={longest} running={finished === null} />
      <p class="hint wrap">{facts.join(' · ')}</p>
      {view.reason && (
        <p class="reason wrap">
          <span class="hint">Why there:</span> {view.reason}
        </p>
      )}
      <div id={`request-${view.id}`} class="request-details" hidden={!open.value}>
        {open.value && <Details view={view} parts={parts} />}
      </div>
    </li>
  );
}

/** Waterfall is a bar as long as the request in proportion to the longest one that is shown. */
function Waterfall({ parts, length, longest, running }: { parts: Part[]; length: number; longest: number; running: boolean }) {
  const words = running ? 'still running' : parts.map(({ label, seconds: s }) => `${label} ${milliseconds(s * 1000)}`).join(', ');
  return (
    <div class="waterfall" role="img" aria-label={`Time: ${words || 'nothing was measured'}`} title={words}>
      <div class="waterfall-bar" style={{ width: `${Math.max(1.5, (100 * length) / longest)}%` }}>
        {running ? <span class="part-running" style={{ flexGrow: 1 }} /> : parts.map(({ kind, seconds: s }) => <span key={kind} class={`part-${kind}`} style={{ flexGrow: s / length }} />)}
      </div>
    </div>
  );
}

function Details({ view, parts }: { view: RequestView; parts: Part[] }) {
  return (
    <>
      {parts.length > 0 && (
        <table class="parts">
          <caption>Where its time went</caption>
          <tbody>
            {parts.map(({ kind, label, seconds: s }) => (
              <tr key={kind}>
                <th scope="row">
                  <span class={`swatch part-${kind}`} aria-hidden="true" /> {label}
                </th>
                <td>{milliseconds(s * 1000)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
      {view.scores.length > 1 && <Scores scores={view.scores} decode={view.decode} />}
      {view.ways.length > 0 && <Ways ways={view.ways} reason={view.wayReason} decode={view.decode} />}
      {view.moved.map((moved, i) => (
        <p key={i} class="hint wrap">
          {movedInWords(moved)}
        </p>
      ))}
      {view.moves.map((move, i) => (
        <p key={i} class="note warn">
          After {plural(move.tokens, 'token')} it went on from {move.from} to {move.to}: {move.reason}
        </p>
      ))}
      <p class="hint wrap">
        Taken by {nameOfNode(view.node) || 'a node that did not say so'} · <code>{view.id}</code>
      </p>
    </>
  );
}

function Scores({ scores, decode }: { scores: Score[]; decode: string }) {
  const chosen = scores.find(({ node }) => node === decode);
  return (
    <table role="table" class="parts stacked">
      <caption>What it would have cost on each node, until the first token, as expected when it was placed</caption>
      <thead role="rowgroup">
        <tr role="row">
          <th role="columnheader" scope="col">Node</th>
          <th role="columnheader" scope="col">Queue</th>
          <th role="columnheader" scope="col">Fetch</th>
          <th role="columnheader" scope="col">Prefill</th>
          <th role="columnheader" scope="col">In all</th>
        </tr>
      </thead>
      <tbody role="rowgroup">
        {[...scores]
          .sort((a, b) => (a.why ? 1 : 0) - (b.why ? 1 : 0) || a.seconds - b.seconds)
          .map((score) => (
            <tr role="row" key={score.node}>
              <th role="rowheader" scope="row">
                {score.node}
                {score.node === decode && ' (chosen)'}
              </th>
              {score.why ? (
                <td role="cell" colSpan={4}>no candidate: {score.why}</td>
              ) : (
                <>
                  <td role="cell" data-label="Queue">{milliseconds(score.queue_seconds * 1000)}</td>
                  <td role="cell" data-label="Fetch">{milliseconds(score.fetch_seconds * 1000)}</td>
                  <td role="cell" data-label="Prefill">
                    {milliseconds(score.prefill_seconds * 1000)}
                    {score.cached_tokens > 0 && <span class="hint"> ({count(score.cached_tokens)} cached)</span>}
                  </td>
                  <td role="cell" data-label="In all">
                    {milliseconds(score.seconds * 1000)}
                    {chosen && score !== chosen && <span class="hint"> {difference(score.seconds - chosen.seconds)}</span>}
                  </td>
                </>
              )}
            </tr>
          ))}
      </tbody>
    </table>
  );
}

/** difference says how another way compares with the chosen one. */
export function difference(more: number): string {
  if (Math.abs(more) < 0.0005) return 'the same';
  return more > 0 ? `${milliseconds(more * 1000)} more` : `${milliseconds(-more * 1000)} less`;
}

function Ways({ ways, reason, decode }: { ways: Way[]; reason: string; decode: string }) {
  const [chosen, ...others] = ways;
  return (
    <div>
      <p class="wrap">
        The prompt was {chosen && wayInWords(chosen, decode)}
        {chosen && `, expected to take ${milliseconds(chosen.seconds * 1000)}`}{reason && `: ${reason}`}.
      </p>
      {chosen && others.length > 0 && (
        <ul class="hint">
          {others.map((way, i) => (
            <li key={i}>
              {wayInWords(way, decode)}: {milliseconds(way.seconds * 1000)}, {difference(way.seconds - chosen.seconds)}
            </li>
          ))}
        </ul>
      )}
    </div>
  );
}

function movedInWords(moved: Moved): string {
  const came = moved.outcome === 'complete' ? `${plural(moved.blocks, 'block')} (${bytes(moved.bytes)})` : `${count(moved.blocks)} of ${plural(moved.wanted, 'block')} (${moved.outcome.replaceAll('_', ' ')}${moved.error && `: ${moved.error}`})`;
  const over = moved.transport ? ` over ${wire(moved.transport)}` : '';
  const speed = moved.seconds > 0 && moved.bytes > 0 && !moved.made ? `, ${((moved.bytes * 8) / moved.seconds / 1e9).toFixed(2)} Gbit/s` : '';
  return `KV from ${moved.from}${over}: ${came} in ${milliseconds(moved.seconds * 1000)}, expected ${milliseconds(moved.estimate * 1000)}${speed}${moved.made ? '; it computed them meanwhile' : ''}.`;
}

function outcomeInWords(outcome: string, status: number): string {
  const words: Record<string, string> = { stop: 'ended by the model', length: 'ended by its limit', tool_calls: 'ended with a tool call', cancelled: 'left by the client', error: `failed (${status})`, rejected: `refused (${status})` };
  return words[outcome] ?? outcome;
}

function clock(ms: number): string {
  return ms > 0 && ms < Number.MAX_SAFE_INTEGER ? new Date(ms).toLocaleTimeString('en-GB') : '';
}
