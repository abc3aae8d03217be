import { useSignal, type Signal } from '@preact/signals';
import { toFailure, type Failure } from '../lib/api';
import { bytes, count, plural, seconds } from '../lib/format';
import { evict, evictedInWords, modelInWords, nameOf, placesOf, readKV, setPinned, usesOf, type KVLook, type KVPrefix, type KVState, type KVTier } from '../lib/kv';
import { usePoll } from '../lib/poll';
import { announce } from '../ui/announce';
import { confirm } from '../ui/Dialog';
import { Icon } from '../ui/Icon';
import { Page } from './Page';

const refreshMilliseconds = 2000;

/** KVPage shows what this node keeps of computed prompts, where, and what that spared. */
export function KVPage() {
  const look = useSignal<KVLook | null>(null);
  const failure = useSignal<Failure | null>(null);
  const read = async (signal?: AbortSignal) => {
    try {
      look.value = await readKV(signal);
      failure.value = null;
    } catch (err) {
      if (!signal?.aborted) failure.value = toFailure(err);
    }
  };
  usePoll(read, refreshMilliseconds);
  return (
    <Page title="KV">
      <p class="hint">A prompt that was computed once is kept in blocks, in memory and on disk, so that its beginning need not be computed again.</p>
      {failure.value && (
        <p class="note bad" role="alert">
          {failure.value.message}
        </p>
      )}
      {look.value && <Kept look={look.value} read={read} />}
    </Page>
  );
}

function Kept({ look: { state, prefixes, total }, read }: { look: KVLook; read: () => Promise<void> }) {
  const said = useSignal<string | null>(null);
  if (!state.enabled) return <p class="note warn">Nothing is kept on this node: {state.reason}.</p>;
  return (
    <>
      <Figures state={state} total={total} />
      {state.checks !== undefined && state.checks.different > 0 && (
        <p class="note bad" role="alert">
          {count(state.checks.different)} of {plural(state.checks.done, 'restored prompt')} went on with another text when computed once more. The log of the node says which model.
        </p>
      )}
      <Tiers state={state} />
      {state.models.length > 0 && (
        <section aria-label="Models">
          <h2>Models</h2>
          <ul class="cards">
            {state.models.map((model) => (
              <li key={model.name} class="card">
                <h3 class="wrap">{model.name}</h3>
                <p class="hint">{modelInWords(model)}</p>
              </li>
            ))}
          </ul>
        </section>
      )}
      <section aria-label="Kept prefixes">
        <h2>Kept prefixes</h2>
        {said.value && (
          <p class="note" role="alert">
            {said.value}
          </p>
        )}
        {prefixes.length === 0 && <p>No prompt has filled a block yet.</p>}
        <ul class="cards">
          {prefixes.map((prefix) => (
            <PrefixCard key={prefix.id} prefix={prefix} read={read} said={said} />
          ))}
        </ul>
        {total > prefixes.length && <p class="hint">And {count(total - prefixes.length)} that were used longer ago.</p>}
      </section>
    </>
  );
}

function Figures({ state, total }: { state: KVState; total: number }) {
  return (
    <dl class="figures">
      <Figure name="Tokens spared" value={count(state.tokens_spared)} />
      <Figure name="Time spared, about" value={state.seconds_spared > 0 ? seconds(state.seconds_spared) : '–'} />
      <Figure name="Prefixes" value={count(total)} />
      <Figure name="Pinned" value={count(state.pins)} />
    </dl>
  );
}

function Figure({ name, value }: { name: string; value: string }) {
  return (
    <div class="figure prefill">
      <dt>{name}</dt>
      <dd>{value}</dd>
    </div>
  );
}

function Tiers({ state }: { state: KVState }) {
  return (
    <section class="card" aria-label="Tiers">
      <Tier name="Memory" tier={state.ram} />
      {state.disk.budget > 0 && <Tier name="Disk" tier={state.disk} />}
      {state.queue.blocks > 0 && (
        <p class="hint">
          {plural(state.queue.blocks, 'block')} ({bytes(state.queue.bytes)}) {state.queue.blocks === 1 ? 'waits' : 'wait'} to be written to disk.
        </p>
      )}
      {state.disk_full && <p class="note warn">The disk is full. Blocks stay in memory only until there is room again.</p>}
      {state.disk_failing && !state.disk_full && <p class="note warn">Writing to disk fails. Blocks stay in memory only; the log of the node says why.</p>}
    </section>
  );
}

function Tier({ name, tier }: { name: string; tier: KVTier }) {
  return (
    <div class="tier">
      <div class="row between">
        <strong>{name}</strong>
        <span class="hint">
          {bytes(tier.bytes)} of {bytes(tier.budget)} · {plural(tier.blocks, 'block')}
        </span>
      </div>
      <progress aria-label={`${name} in use`} max={tier.budget} value={Math.min(tier.bytes, tier.budget)} />
    </div>
  );
}

function PrefixCard({ prefix, read, said }: { prefix: KVPrefix; read: () => Promise<void>; said: Signal<string | null> }) {
  const busy = useSignal(false);
  const name = nameOf(prefix);
  const act = async (work: () => Promise<string>) => {
    busy.value = true;
    said.value = null;
    try {
      announce(await work());
    } catch (err) {
      said.value = toFailure(err).message;
    }
    await read();
    busy.value = false;
  };
  const toggle = () =>
    act(async () => {
      await setPinned(prefix.id, !prefix.pinned);
      return prefix.pinned ? 'Unpinned' : 'Pinned';
    });
  const remove = async () => {
    const after = prefix.branches > 0 ? ` So will the ${plural(prefix.branches, 'prefix', 'prefixes')} that go on from it.` : '';
    if (!(await confirm('Evict this prefix?', `${name} will be computed again when it is asked for.${after}`, 'Evict'))) return;
    await act(async () => {
      const done = await evict(prefix.first);
      if (done.kept > 0) said.value = evictedInWords(done);
      return evictedInWords(done);
    });
  };
  return (
    <li class="card kv-prefix">
      <div class="row between">
        <h3 class="wrap">{name}</h3>
        {prefix.pinned && <span class="badge on">pinned</span>}
      </div>
      <p class="hint">{[prefix.model ?? 'of a model that is not loaded', prefix.key && `key ${prefix.key}`, plural(prefix.tokens, 'token'), ...placesOf(prefix)].filter(Boolean).join(' · ')}</p>
      <p class="hint">
        {usesOf(prefix, Date.now()).join(' · ')} · <code>{prefix.id.slice(0, 12)}</code>
      </p>
      <div class="row">
        <button type="button" class="button" disabled={busy.value} onClick={toggle} aria-label={`${prefix.pinned ? 'Unpin' : 'Pin'} ${name}`}>
          <Icon name="pin" /> {prefix.pinned ? 'Unpin' : 'Pin'}
        </button>
        <button type="button" class="button quiet" disabled={busy.value} onClick={remove} aria-label={`Evict ${name}`}>
          <Icon name="trash" /> Evict…
        </button>
      </div>
    </li>
  );
}
