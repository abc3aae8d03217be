import { signal, useSignal, type Signal } from '@preact/signals';
import { toFailure, type Failure } from '../lib/api';
import { nameOfNode, nodes, self, useLive } from '../lib/cluster';
import { bytes, count, plural, seconds } from '../lib/format';
import { bestOf, copiedInWords, copyTo, evict, evictedInWords, modelInWords, nameOf, placesOf, readKV, setPinned, together, usesOf, type HeldPrefix, type KVLook, type KVPrefix, type KVState, type KVTier } from '../lib/kv';
import { usePoll } from '../lib/poll';
import { announce } from '../ui/announce';
import { confirm } from '../ui/Dialog';
import { Figure } from '../ui/Figure';
import { Icon } from '../ui/Icon';
import { Page } from './Page';

const refreshMilliseconds = 2000;
/** Prefixes that are drawn at first; more on demand. */
const rowsAtOnce = 40;

const words = signal(''); // what a person looks for

type Looks = [node: string, look: KVLook][];

/** KVPage shows what the nodes keep of computed prompts, where, and what that spared. */
export function KVPage() {
  useLive();
  const looks = useSignal<Looks>([]);
  const failures = useSignal<[node: string, failure: Failure][]>([]);
  const read = async (abort?: AbortSignal) => {
    const ids = answering();
    const answers = await Promise.allSettled(ids.map((id) => readKV(id, abort)));
    if (abort?.aborted) return;
    looks.value = answers.flatMap((answer, i) => (answer.status === 'fulfilled' ? [[ids[i]!, answer.value] as [string, KVLook]] : []));
    failures.value = answers.flatMap((answer, i) => (answer.status === 'rejected' ? [[ids[i]!, toFailure(answer.reason)] as [string, Failure]] : []));
  };
  usePoll(read, refreshMilliseconds);
  const several = looks.value.length + failures.value.length > 1;
  return (
    <Page title="KV">
      <p class="hint">A prompt that was computed once is kept in blocks, in memory and on disk, so that its beginning need not be computed again. Nodes fetch blocks from each other.</p>
      {failures.value.map(([node, failure]) => (
        <p key={node} class="note bad" role="alert">
          {several && `${nameOfNode(node)}: `}
          {failure.message}
        </p>
      ))}
      {looks.value.length > 0 && <Kept looks={looks.value} several={several} read={read} />}
    </Page>
  );
}

/** answering are the nodes that can be asked; before anything is known, the one that serves the page. */
function answering(): string[] {
  const there = nodes.value.filter(({ member, silent }) => member.state !== 'failed' && member.state !== 'left' && !silent).map(({ member }) => member.id);
  return there.length > 0 ? there : [self.value];
}

function Kept({ looks, several, read }: { looks: Looks; several: boolean; read: () => Promise<void> }) {
  const said = useSignal<string | null>(null);
  const shownRows = useSignal(rowsAtOnce);
  const on = looks.filter(([, { state }]) => state.enabled);
  const off = looks.filter(([, { state }]) => !state.enabled);
  const held = together(on).filter((prefix) => found(prefix, words.value));
  const more = on.reduce((sum, [, { total, prefixes }]) => sum + Math.max(0, total - prefixes.length), 0);
  return (
    <>
      {off.map(([node, { state }]) => (
        <p key={node} class="note warn">
          Nothing is kept on {several ? nameOfNode(node) : 'this node'}: {state.reason}.
        </p>
      ))}
      {on.length > 0 && (
        <>
          <Figures looks={on} />
          {on.map(([node, { state }]) => (
            <Tiers key={node} state={state} name={several ? nameOfNode(node) : ''} />
          ))}
          <Models looks={on} several={several} />
          <section aria-label="Kept prefixes">
            <h2>Kept prefixes</h2>
            {said.value && (
              <p class="note" role="alert">
                {said.value}
              </p>
            )}
            {(held.length > 5 || words.value !== '') && (
              <label class="field inline">
                <span>Find</span>
                <input type="search" value={words.value} autocomplete="off" spellcheck={false} placeholder="words, model, node" onInput={(event) => (words.value = event.currentTarget.value)} />
              </label>
            )}
            {held.length === 0 && <p>{words.value === '' ? 'No prompt has filled a block yet.' : 'No kept prefix has these words.'}</p>}
            <ul class="cards">
              {held.slice(0, shownRows.value).map((prefix) => (
                <PrefixCard key={prefix.id} held={prefix} several={several} read={read} said={said} />
              ))}
            </ul>
            {held.length > shownRows.value && (
              <p>
                <button type="button" class="button" onClick={() => (shownRows.value += rowsAtOnce)}>
                  Show more
                </button>
              </p>
            )}
            {more > 0 && <p class="hint">And {count(more)} that were used longer ago.</p>}
          </section>
        </>
      )}
    </>
  );
}

function found(held: HeldPrefix, text: string): boolean {
  if (text.trim() === '') return true;
  const all = held.holders.map(({ node, prefix }) => [nameOfNode(node), nameOf(prefix), prefix.model, prefix.key, prefix.id].join(' ')).join(' ').toLowerCase();
  return text.toLowerCase().split(/\s+/).every((word) => all.includes(word));
}

function Figures({ looks }: { looks: Looks }) {
  const sum = (pick: (look: KVLook) => number) => looks.reduce((total, [, look]) => total + pick(look), 0);
  const spared = sum(({ state }) => state.seconds_spared);
  return (
    <dl class="figures">
      <Figure name="Tokens spared" value={count(sum(sparedBy))} kind="prefill" />
      <Figure name="Time spared, about" value={spared > 0 ? seconds(spared) : '–'} kind="prefill" />
      <Figure name={looks.length > 1 ? 'Prefixes, with copies' : 'Prefixes'} value={count(sum(({ total }) => total))} kind="prefill" />
      <Figure name="Pinned" value={count(sum(({ state }) => state.pins))} kind="prefill" />
    </dl>
  );
}

/** sparedBy counts tokens of blocks that were fetched, too, which only the models' own counts know. */
function sparedBy({ state }: KVLook): number {
  return Math.max(state.tokens_spared, state.models.reduce((total, model) => total + model.tokens_spared, 0));
}

function Tiers({ state, name }: { state: KVState; name: string }) {
  const of = name && ` of ${name}`;
  return (
    <section class="card" aria-label={`Tiers${of}`}>
      {name && <h2>{name}</h2>}
      <Tier label={`Memory${of} in use`} name="Memory" tier={state.ram} />
      {state.disk.budget > 0 && <Tier label={`Disk${of} in use`} name="Disk" tier={state.disk} />}
      {state.queue.blocks > 0 && (
        <p class="hint">
          {plural(state.queue.blocks, 'block')} ({bytes(state.queue.bytes)}) {state.queue.blocks === 1 ? 'waits' : 'wait'} to be written to disk.
        </p>
      )}
      {state.disk_full && <p class="note warn">The disk is full. Blocks stay in memory only until there is room again.</p>}
      {state.disk_failing && !state.disk_full && <p class="note warn">Writing to disk fails. Blocks stay in memory only; the log of the node says why.</p>}
      {state.checks !== undefined && state.checks.different > 0 && (
        <p class="note bad" role="alert">
          {count(state.checks.different)} of {plural(state.checks.done, 'restored prompt')} went on with another text when computed once more. The log of the node says which model.
        </p>
      )}
    </section>
  );
}

function Tier({ name, label, tier }: { name: string; label: string; tier: KVTier }) {
  return (
    <div class="tier">
      <div class="row between">
        <strong>{name}</strong>
        <span class="hint">
          {bytes(tier.bytes)} of {bytes(tier.budget)} · {plural(tier.blocks, 'block')}
        </span>
      </div>
      <progress aria-label={label} max={tier.budget} value={Math.min(tier.bytes, tier.budget)} />
    </div>
  );
}

function Models({ looks, several }: { looks: Looks; several: boolean }) {
  const names = [...new Set(looks.flatMap(([, { state }]) => state.models.map(({ name }) => name)))].sort();
  if (names.length === 0) return null;
  return (
    <section aria-label="Models">
      <h2>Models</h2>
      <ul class="cards">
        {names.map((name) => (
          <li key={name} class="card">
            <h3 class="wrap">{name}</h3>
            {looks.map(([node, { state }]) => {
              const model = state.models.find((one) => one.name === name);
              return (
                model && (
                  <p key={node} class="hint">
                    {several && <strong>{nameOfNode(node)}: </strong>}
                    {modelInWords(model)}
                  </p>
                )
              );
            })}
          </li>
        ))}
      </ul>
    </section>
  );
}

interface Act {
  busy: Signal<boolean>;
  run: (work: () => Promise<string>) => Promise<void>;
  said: Signal<string | null>;
}

function PrefixCard({ held, several, read, said }: { held: HeldPrefix; several: boolean; read: () => Promise<void>; said: Signal<string | null> }) {
  const busy = useSignal(false);
  const shown = bestOf(held);
  const only = several ? null : held.holders[0]!;
  const run = async (work: () => Promise<string>) => {
    busy.value = true;
    said.value = null;
    try {
      const done = await work();
      if (said.value === null) announce(done); // what is said is an alert, which is spoken by itself
    } catch (err) {
      said.value = toFailure(err).message;
    }
    await read();
    busy.value = false;
  };
  const act = { busy, run, said };
  const lacking = nodes.value.filter(({ member, silent }) => !silent && member.state !== 'failed' && member.state !== 'left' && !held.holders.some(({ node }) => node === member.id));
  return (
    <li class="card kv-prefix">
      <div class="row between">
        <h3 class="wrap">{nameOf(shown)}</h3>
        {held.holders.some(({ prefix }) => prefix.pinned) && <span class="badge on">pinned</span>}
      </div>
      <p class="hint">{[shown.model ?? 'of a model that is not loaded', shown.key && `key ${shown.key}`, plural(shown.tokens, 'token'), ...(only ? placesOf(only.prefix) : [])].filter(Boolean).join(' · ')}</p>
      {only && (
        <p class="hint">
          {usesOf(only.prefix, Date.now()).join(' · ')} · <code>{held.id.slice(0, 12)}</code>
        </p>
      )}
      {only ? (
        <Actions node={only.node} prefix={only.prefix} on="" act={act} />
      ) : (
        <>
          <p class="hint">
            <code>{held.id.slice(0, 12)}</code>
          </p>
          <ul class="holders">
            {held.holders.map(({ node, prefix }) => (
              <li key={node}>
                <div class="holder-head">
                  <strong class="wrap">{nameOfNode(node)}</strong>
                  <Shares prefix={prefix} />
                </div>
                <p class="hint">{[...placesOf(prefix), ...usesOf(prefix, Date.now())].join(' · ')}</p>
                <Actions node={node} prefix={prefix} on={` on ${nameOfNode(node)}`} act={act} />
              </li>
            ))}
          </ul>
          {lacking.length > 0 && <CopyTo held={held} to={lacking.map(({ member }) => member.id)} act={act} />}
        </>
      )}
    </li>
  );
}

/** Shares are two small bars: how much of a prefix lies in memory, and how much on disk. */
function Shares({ prefix }: { prefix: KVPrefix }) {
  const bar = (kind: string, blocks: number) => (
    <span class={`share ${kind}`} aria-hidden="true">
      <span style={{ width: `${Math.min(100, (100 * blocks) / Math.max(1, prefix.blocks))}%` }} />
    </span>
  );
  return (
    <span class="shares">
      {bar('ram', prefix.ram_blocks)}
      {bar('disk', prefix.disk_blocks)}
    </span>
  );
}

function Actions({ node, prefix, on, act: { busy, run, said } }: { node: string; prefix: KVPrefix; on: string; act: Act }) {
  const name = nameOf(prefix);
  const toggle = () =>
    run(async () => {
      await setPinned(node, prefix.id, !prefix.pinned);
      return prefix.pinned ? 'Unpinned' : 'Pinned';
    });
  const remove = async () => {
    const after = prefix.branches > 0 ? ` So will the ${plural(prefix.branches, 'prefix', 'prefixes')} that go on from it.` : '';
    if (!(await confirm('Evict this prefix?', `${name} will be computed again${on ? `${on}, or fetched from another node,` : ''} when it is asked for.${after}`, 'Evict'))) return;
    await run(async () => {
      const done = await evict(node, prefix.first);
      if (done.kept > 0) said.value = evictedInWords(done);
      return evictedInWords(done);
    });
  };
  return (
    <div class="row">
      <button type="button" class="button" disabled={busy.value} onClick={toggle} aria-label={`${prefix.pinned ? 'Unpin' : 'Pin'} ${name}${on}`}>
        <Icon name="pin" /> {prefix.pinned ? 'Unpin' : 'Pin'}
      </button>
      <button type="button" class="button quiet" disabled={busy.value} onClick={remove} aria-label={`Evict ${name}${on}`}>
        <Icon name="trash" /> Evict…
      </button>
    </div>
  );
}

function CopyTo({ held, to, act: { busy, run, said } }: { held: HeldPrefix; to: string[]; act: Act }) {
  const chosen = useSignal('');
  const target = to.includes(chosen.value) ? chosen.value : to[0]!;
  const name = nameOf(bestOf(held));
  const copy = () =>
    run(async () => {
      const done = copiedInWords(await copyTo(target, held.holders[0]!.node, held.id), nameOfNode(target));
      said.value = done;
      return done;
    });
  return (
    <div class="row">
      <select aria-label={`Node to copy ${name} to`} value={target} onChange={(event) => (chosen.value = event.currentTarget.value)}>
        {to.map((id) => (
          <option key={id} value={id}>
            {nameOfNode(id)}
          </option>
        ))}
      </select>
      <button type="button" class="button" disabled={busy.value} onClick={copy} aria-label={`Copy ${name} to ${nameOfNode(target)}`}>
        <Icon name="copy" /> Copy
      </button>
    </div>
  );
}
