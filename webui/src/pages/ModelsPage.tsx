import { signal, useSignal } from '@preact/signals';
import { useRef } from 'preact/hooks';
import { toFailure, type Failure } from '../lib/api';
import { looks, nameOfNode, nodes, self, useLive } from '../lib/cluster';
import { memoryOf } from '../lib/diagnosis';
import { bytes, count, plural } from '../lib/format';
import { deleteModel, fitInWords, loadModels, modelsOnNodes, placeOf, pullModel, readModels, setLoaded, type Model, type ModelOnNodes, type PullProgress } from '../lib/models';
import { usePoll } from '../lib/poll';
import { announce } from '../ui/announce';
import { confirm } from '../ui/Dialog';
import { Icon } from '../ui/Icon';
import { Page } from './Page';

const refreshMilliseconds = 5000;

const lists = signal<[node: string, models: Model[]][]>([]);
const failures = signal<[node: string, failure: Failure][]>([]);

async function readAll(abort?: AbortSignal): Promise<void> {
  const ids = answering();
  const answers = await Promise.allSettled(ids.map((id) => readModels(id, abort)));
  if (abort?.aborted) return;
  lists.value = answers.flatMap((answer, i) => (answer.status === 'fulfilled' ? [[ids[i]!, answer.value] as [string, Model[]]] : []));
  failures.value = answers.flatMap((answer, i) => (answer.status === 'rejected' ? [[ids[i]!, toFailure(answer.reason)] as [string, Failure]] : []));
}

/** answering are the nodes that can be asked; before anything is known, the one that serves the page. */
function answering(): string[] {
  const there = nodes.value.filter(({ member, silent }) => member.state !== 'failed' && member.state !== 'left' && !silent).map(({ member }) => member.id);
  return there.length > 0 ? there : [self.value];
}

/** ModelsPage lists what the nodes can answer with, gets more, and frees memory. */
export function ModelsPage() {
  useLive();
  usePoll(readAll, refreshMilliseconds);
  const ids = answering();
  const list = modelsOnNodes(lists.value);
  return (
    <Page title="Models">
      <PullForm ids={ids} />
      {pulls.value.length > 0 && (
        <section class="card" aria-label="Downloads">
          <h2>Downloads</h2>
          {pulls.value.map((pull) => (
            <PullStatus key={pull.id} pull={pull} several={ids.length > 1} />
          ))}
        </section>
      )}
      {failures.value.map(([node, failure]) => (
        <p key={node} class="note bad" role="alert">
          {ids.length > 1 && `${nameOfNode(node)}: `}
          {failure.message}
        </p>
      ))}
      {lists.value.length > 0 && list.length === 0 && <p>No model is here yet.</p>}
      <ul class="cards">
        {list.map((model) => (
          <ModelCard key={model.name} model={model} ids={ids} />
        ))}
      </ul>
    </Page>
  );
}

function ModelCard({ model: { name, on }, ids }: { model: ModelOnNodes; ids: string[] }) {
  const first = on[0]!.model;
  const loaded = on.filter(({ model }) => model.loaded).length;
  const several = ids.length > 1;
  const lacking = ids.filter((id) => !on.some(({ node }) => node === id));
  const alone = several ? null : on[0]!;
  return (
    <li class="card model">
      <div class="row between">
        <h2 class="wrap">{name}</h2>
        <span class={loaded > 0 ? 'badge on' : 'badge'}>{several ? (loaded > 0 ? `in memory on ${loaded} of ${plural(ids.length, 'node')}` : `on disk of ${plural(on.length, 'node')}`) : loaded > 0 ? 'in memory' : 'on disk'}</span>
      </div>
      <p class="hint">{facts(first, alone !== null).join(' · ')}</p>
      {first.capabilities && first.capabilities.length > 0 && (
        <ul class="tags" aria-label={`What ${name} can do`}>
          {first.capabilities.map((capability) => (
            <li key={capability} class="badge">
              {capabilityInWords(capability)}
            </li>
          ))}
        </ul>
      )}
      {alone ? (
        <OnNode node={alone.node} model={alone.model} on="" />
      ) : (
        <ul class="holders">
          {on.map(({ node, model }) => (
            <li key={node}>
              <OnNode node={node} model={model} on={` on ${nameOfNode(node)}`} />
            </li>
          ))}
          {lacking.map((node) => (
            <li key={node}>
              <Lacking node={node} model={first} />
            </li>
          ))}
        </ul>
      )}
    </li>
  );
}

const capabilities: Record<string, string> = { completion: 'chat and text', chat: 'chat', tools: 'tools', embedding: 'embeddings', vision: 'pictures', thinking: 'thinking', insert: 'fill in the middle' };

function capabilityInWords(capability: string): string {
  return capabilities[capability] ?? capability;
}

/** fit is the hint whether a model would fit into the memory of a node. */
function fit(node: string, model: Model) {
  const status = looks.value.get(node)?.status;
  const memory = status ? memoryOf(status) : null;
  return fitInWords(model.needsBytes, memory ? memory.max - memory.used : undefined, memory?.max);
}

function OnNode({ node, model, on }: { node: string; model: Model; on: string }) {
  const busy = useSignal('');
  const failure = useSignal<string | null>(null);
  const act = async (name: string, work: () => Promise<void>) => {
    busy.value = name;
    failure.value = null;
    await work().catch((err: unknown) => (failure.value = toFailure(err).message));
    await Promise.all([readAll(), loadModels()]);
    busy.value = '';
  };
  const toggle = () => act(model.loaded ? 'Unloading…' : 'Loading…', () => setLoaded(node, model.name, !model.loaded));
  const remove = async () => {
    if (!(await confirm('Delete this model?', `The file of ${model.name} will be removed from ${on ? nameOfNode(node) : 'this node'}.`, 'Delete'))) return;
    await act('Deleting…', () => deleteModel(node, model.name));
  };
  const hint = model.loaded ? null : fit(node, model);
  const words = [busy.value || (on && (model.loaded ? 'in memory' : 'on disk')), on && placeOf(model), model.loaded && model.memoryBytes ? `${bytes(model.memoryBytes)} in memory` : '', model.loaded ? unloadTime(model) : '', hint?.words].filter(Boolean);
  return (
    <div class="on-node">
      <p class="wrap">
        {on && <strong>{nameOfNode(node)} </strong>}
        <span class={hint?.fits === 'no' ? 'hint misfit' : 'hint'}>{words.join(' · ')}</span>
      </p>
      {failure.value && (
        <p class="note bad" role="alert">
          {failure.value}
        </p>
      )}
      <div class="row">
        <button type="button" class="button" disabled={busy.value !== ''} onClick={toggle} aria-label={`${model.loaded ? 'Unload' : 'Load'} ${model.name}${on}`}>
          {model.loaded ? 'Unload' : 'Load'}
        </button>
        {placeOf(model) === null && (
          <button type="button" class="button quiet" disabled={busy.value !== ''} onClick={remove} aria-label={`Delete ${model.name}${on}`}>
            <Icon name="trash" /> Delete…
          </button>
        )}
      </div>
    </div>
  );
}

function Lacking({ node, model }: { node: string; model: Model }) {
  const hint = fit(node, model);
  const under = pulls.value.some((pull) => pull.node === node && pull.name === model.name && pull.failure === null);
  return (
    <div class="on-node">
      <p class="wrap">
        <strong>{nameOfNode(node)}</strong> <span class={hint?.fits === 'no' ? 'hint misfit' : 'hint'}>{['not there', hint?.words].filter(Boolean).join(' · ')}</span>
      </p>
      <div class="row">
        <button type="button" class="button" disabled={under} onClick={() => void startPull(node, model.name)} aria-label={`${under ? 'Copying…' : 'Copy'} ${model.name} to ${nameOfNode(node)}`}>
          <Icon name="copy" /> {under ? 'Copying…' : 'Copy'}
        </button>
      </div>
    </div>
  );
}

function facts(model: Model, alone: boolean): string[] {
  return [
    model.parameters && `${model.parameters} parameters`,
    model.quantization,
    model.family,
    model.bytes && `${bytes(model.bytes)} on disk`,
    alone && placeOf(model),
    model.contextLength && `context ${count(model.contextLength)}`,
  ].filter((fact) => typeof fact === 'string' && fact !== '') as string[];
}

function unloadTime({ expires }: Model): string {
  const minutes = Math.ceil(((expires ?? 0) - Date.now()) / 60_000);
  // Far times stand for "never".
  return minutes > 0 && minutes < 60 * 24 * 30 ? `unloads in ${plural(minutes, 'minute')} if unused` : '';
}

interface Pull {
  id: number;
  node: string;
  name: string;
  step: PullProgress;
  failure: string | null;
  controller: AbortController;
}

// Downloads go on while other pages are looked at.
const pulls = signal<Pull[]>([]);
let lastPull = 0;

async function startPull(node: string, name: string): Promise<void> {
  const controller = new AbortController();
  const id = ++lastPull;
  const update = (change: Partial<Pull>) => (pulls.value = pulls.value.map((pull) => (pull.id === id ? { ...pull, ...change } : pull)));
  const end = () => (pulls.value = pulls.value.filter((pull) => pull.id !== id));
  // A failure of before is told no longer once the same is tried again.
  pulls.value = [...pulls.value.filter((pull) => pull.node !== node || pull.name !== name), { id, node, name, step: { status: 'starting' }, failure: null, controller }];
  try {
    await pullModel(node, name, controller.signal, (step) => update({ step }));
    end();
    announce(`${name} is on ${nameOfNode(node) || 'this node'}`);
  } catch (err) {
    if (controller.signal.aborted) end();
    else update({ failure: toFailure(err).message });
  }
  await Promise.all([readAll(), loadModels()]);
}

function PullForm({ ids }: { ids: string[] }) {
  const input = useRef<HTMLInputElement>(null);
  const left = useSignal<ReadonlySet<string>>(new Set()); // nodes that do not get it
  const submit = (event: Event) => {
    event.preventDefault();
    const name = input.current?.value.trim() ?? '';
    if (name === '') return;
    for (const node of ids) {
      const under = pulls.value.some((pull) => pull.node === node && pull.name === name && pull.failure === null);
      if (!under && (ids.length === 1 || !left.value.has(node))) void startPull(node, name);
    }
  };
  const toggle = (node: string) => {
    const next = new Set(left.value);
    if (!next.delete(node)) next.add(node);
    left.value = next;
  };
  return (
    <form class="card pull" onSubmit={submit}>
      <label for="pull-name">Get a model</label>
      <div class="row">
        <input ref={input} id="pull-name" type="text" placeholder="qwen3:4b or hf.co/org/repo:Q4_K_M" autocomplete="off" autocapitalize="off" spellcheck={false} aria-describedby="pull-hint" />
        <button type="submit" class="button primary" disabled={ids.length > 1 && ids.every((id) => left.value.has(id))}>
          <Icon name="download" /> Pull
        </button>
      </div>
      {ids.length > 1 && (
        <fieldset class="row on-nodes">
          <legend class="offscreen">Nodes that get it</legend>
          {ids.map((id) => (
            <label key={id} class="check">
              <input type="checkbox" checked={!left.value.has(id)} onChange={() => toggle(id)} />
              <span>{nameOfNode(id)}</span>
            </label>
          ))}
        </fieldset>
      )}
      <p id="pull-hint" class="hint">
        A name of the Ollama registry, hf.co/org/repo with an optional quantisation, or the https address of a GGUF file. What another node has is copied from there.
      </p>
    </form>
  );
}

function PullStatus({ pull: { id, node, name, step, failure, controller }, several }: { pull: Pull; several: boolean }) {
  const where = several ? ` on ${nameOfNode(node)}` : '';
  if (failure !== null) {
    return (
      <div class="note bad row between" role="alert">
        <span class="wrap">
          {name}
          {where}: {failure}
        </span>
        <button type="button" class="button quiet" aria-label={`Dismiss the failure of ${name}${where}`} onClick={() => (pulls.value = pulls.value.filter((pull) => pull.id !== id))}>
          Dismiss
        </button>
      </div>
    );
  }
  const { total, completed = 0, status } = step;
  return (
    <div class="pull-status">
      <progress aria-label={`Download of ${name}${where}`} max={total || 1} value={total ? completed : undefined} />
      <div class="row between">
        <span class="hint wrap">
          {name}
          {where}: {status}
          {total ? ` · ${bytes(completed)} of ${bytes(total)}` : ''}
        </span>
        <button type="button" class="button quiet" aria-label={`Cancel the download of ${name}${where}`} onClick={() => controller.abort()}>
          Cancel
        </button>
      </div>
    </div>
  );
}
