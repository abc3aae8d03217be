import { signal, useSignal } from '@preact/signals';
import { useRef } from 'preact/hooks';
import { toFailure } from '../lib/api';
import { bytes, count, plural } from '../lib/format';
import { deleteModel, loadModels, models, modelsFailure, placeOf, pullModel, setLoaded, type Model, type PullProgress } from '../lib/models';
import { usePoll } from '../lib/poll';
import { announce } from '../ui/announce';
import { confirm } from '../ui/Dialog';
import { Icon } from '../ui/Icon';
import { Page } from './Page';

const refreshMilliseconds = 5000;

/** ModelsPage lists what this node can answer with, gets more, and frees memory. */
export function ModelsPage() {
  usePoll(loadModels, refreshMilliseconds);
  const list = models.value;
  return (
    <Page title="Models">
      <PullForm />
      {modelsFailure.value && (
        <p class="note bad" role="alert">
          {modelsFailure.value.message}
        </p>
      )}
      {list?.length === 0 && <p>No model is on this node yet.</p>}
      <ul class="cards">
        {list?.map((model) => (
          <ModelCard key={model.name} model={model} />
        ))}
      </ul>
    </Page>
  );
}

function ModelCard({ model }: { model: Model }) {
  const busy = useSignal('');
  const failure = useSignal<string | null>(null);
  const act = async (name: string, work: () => Promise<void>) => {
    busy.value = name;
    failure.value = null;
    await work().catch((err: unknown) => (failure.value = toFailure(err).message));
    await loadModels();
    busy.value = '';
  };
  const toggle = () => act(model.loaded ? 'Unloading…' : 'Loading…', () => setLoaded(model.name, !model.loaded));
  const remove = async () => {
    if (!(await confirm('Delete this model?', `The file of ${model.name} will be removed from this node.`, 'Delete'))) return;
    await act('Deleting…', () => deleteModel(model.name));
  };
  return (
    <li class="card model">
      <div class="row between">
        <h2 class="wrap">{model.name}</h2>
        <span class={model.loaded ? 'badge on' : 'badge'}>{busy.value || (model.loaded ? 'in memory' : 'on disk')}</span>
      </div>
      <p class="hint">{facts(model).join(' · ')}</p>
      {failure.value && (
        <p class="note bad" role="alert">
          {failure.value}
        </p>
      )}
      <div class="row">
        <button type="button" class="button" disabled={busy.value !== ''} onClick={toggle} aria-label={`${model.loaded ? 'Unload' : 'Load'} ${model.name}`}>
          {model.loaded ? 'Unload' : 'Load'}
        </button>
        {placeOf(model) === null && (
          <button type="button" class="button quiet" disabled={busy.value !== ''} onClick={remove} aria-label={`Delete ${model.name}`}>
            <Icon name="trash" /> Delete…
          </button>
        )}
      </div>
    </li>
  );
}

function facts(model: Model): string[] {
  return [
    model.parameters && `${model.parameters} parameters`,
    model.quantization,
    model.family,
    model.bytes && `${bytes(model.bytes)} on disk`,
    placeOf(model),
    model.contextLength && `context ${count(model.contextLength)}`,
    model.memoryBytes && `${bytes(model.memoryBytes)} in memory`,
    model.loaded && unloadTime(model),
  ].filter((fact) => typeof fact === 'string' && fact !== '') as string[];
}

function unloadTime({ expires }: Model): string {
  const minutes = Math.ceil(((expires ?? 0) - Date.now()) / 60_000);
  // Far times stand for "never".
  return minutes > 0 && minutes < 60 * 24 * 30 ? `unloads in ${plural(minutes, 'minute')} if unused` : '';
}

interface Pull {
  name: string;
  step: PullProgress;
  failure: string | null;
  controller: AbortController;
}

// A download goes on while other pages are looked at.
const pull = signal<Pull | null>(null);

async function startPull(name: string): Promise<void> {
  const controller = new AbortController();
  const update = (change: Partial<Pull>) => {
    if (pull.value?.controller === controller) pull.value = { ...pull.value, ...change };
  };
  pull.value = { name, step: { status: 'starting' }, failure: null, controller };
  try {
    await pullModel(name, controller.signal, (step) => update({ step }));
    pull.value = null;
    announce(`${name} is here`);
  } catch (err) {
    if (controller.signal.aborted) pull.value = null;
    else update({ failure: toFailure(err).message });
  }
  await loadModels();
}

function PullForm() {
  const input = useRef<HTMLInputElement>(null);
  const running = pull.value !== null && pull.value.failure === null;
  const submit = (event: Event) => {
    event.preventDefault();
    const name = input.current?.value.trim() ?? '';
    if (name !== '' && !running) void startPull(name);
  };
  return (
    <form class="card pull" onSubmit={submit}>
      <label for="pull-name">Get a model</label>
      <div class="row">
        <input ref={input} id="pull-name" type="text" placeholder="qwen3:4b or hf.co/org/repo:Q4_K_M" autocomplete="off" autocapitalize="off" spellcheck={false} aria-describedby="pull-hint" />
        <button type="submit" class="button primary" disabled={running}>
          <Icon name="download" /> Pull
        </button>
      </div>
      <p id="pull-hint" class="hint">
        A name of the Ollama registry, hf.co/org/repo with an optional quantisation, or the https address of a GGUF file.
      </p>
      {pull.value && <PullStatus pull={pull.value} />}
    </form>
  );
}

function PullStatus({ pull: { name, step, failure, controller } }: { pull: Pull }) {
  if (failure !== null) {
    return (
      <p class="note bad" role="alert">
        {name}: {failure}
      </p>
    );
  }
  const { total, completed = 0, status } = step;
  return (
    <div class="pull-status">
      <progress aria-label={`Download of ${name}`} max={total || 1} value={total ? completed : undefined} />
      <div class="row between">
        <span class="hint">
          {name}: {status}
          {total ? ` · ${bytes(completed)} of ${bytes(total)}` : ''}
        </span>
        <button type="button" class="button quiet" onClick={() => controller.abort()}>
          Cancel
        </button>
      </div>
    </div>
  );
}
