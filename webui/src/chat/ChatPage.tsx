import { useSignal } from '@preact/signals';
import { useEffect, useRef } from 'preact/hooks';
import { canChat, loadModels, models, modelsFailure } from '../lib/models';
import { href, replace, route } from '../lib/router';
import { chats } from '../state';
import { Icon, Mark } from '../ui/Icon';
import type { ChatState } from './chats';
import { Composer } from './Composer';
import { ParamsPanel } from './ParamsPanel';
import { Thread } from './Thread';

/** ChatPage shows the chat that the address names, or a new one. */
export function ChatPage() {
  const id = chatInAddress();
  const state = useSignal<ChatState | null>(null);
  const missing = useSignal(false);
  useEffect(() => {
    missing.value = false;
    // A new chat gets its address with its first message and stays the same chat.
    if (id !== undefined && state.value?.id === id) return;
    state.value = id === undefined ? chats.fresh() : null;
    if (id !== undefined) void open(id);
  }, [id]);
  const open = async (wanted: string) => {
    const found = await chats.open(wanted);
    if (chatInAddress() !== wanted) return;
    state.value = found;
    missing.value = found === null;
  };
  if (missing.value) return <MissingChat />;
  return state.value === null ? null : <ChatView key={state.value.id} state={state.value} />;
}

/** Any address but that of a chat is a new chat here. */
function chatInAddress(): string | undefined {
  return route.value[0] === 'chat' ? route.value[1] : undefined;
}

function MissingChat() {
  return (
    <div class="page">
      <h1>This chat is not in this browser</h1>
      <p>It was deleted, or it belongs to another browser: chats never leave the one they were made in.</p>
      <p>
        <a class="button primary" href={href('chat')}>
          New chat
        </a>
      </p>
    </div>
  );
}

function ChatView({ state }: { state: ChatState }) {
  const panel = useSignal(false);
  const settings = useRef<HTMLButtonElement>(null);
  const { id, title } = state.chat.value;
  const empty = state.messages.value.length === 0;
  useModels(state);
  useEffect(() => {
    if (!empty && chatInAddress() === undefined) replace('chat', id);
  }, [empty, id]);
  useEffect(() => {
    document.title = empty ? 'tandem' : `${title} · tandem`;
  }, [empty, title]);
  const closePanel = () => {
    panel.value = false;
    settings.current?.focus();
  };
  return (
    <div class={panel.value ? 'chat with-params' : 'chat'}>
      <header class="chat-head">
        <h1 class="clip">{title}</h1>
        <ModelSelect state={state} />
        <button ref={settings} type="button" class="button icon-only quiet" aria-label="Settings of this chat" title="Settings of this chat" aria-expanded={panel.value} onClick={() => (panel.value = !panel.value)}>
          <Icon name="sliders" />
        </button>
      </header>
      {empty ? <Welcome /> : <Thread state={state} />}
      <Composer state={state} ready={state.chat.value.model !== ''} />
      {panel.value && <ParamsPanel state={state} onClose={closePanel} />}
    </div>
  );
}

/** useModels keeps the list fresh and gives a chat without a usable model the first one. */
function useModels(state: ChatState): void {
  useEffect(() => {
    void loadModels();
    const refresh = () => void (document.visibilityState === 'visible' && loadModels());
    document.addEventListener('visibilitychange', refresh);
    return () => document.removeEventListener('visibilitychange', refresh);
  }, []);
  const usable = models.value?.filter(canChat) ?? [];
  useEffect(() => {
    const { model } = state.chat.value;
    const [first] = usable;
    if (!first || usable.some(({ name }) => name === model)) return;
    // A chat keeps a model that is gone, so that it is seen; a new chat takes one that is there.
    if (model === '' || state.messages.value.length === 0) void chats.change(state, { model: (usable.find(({ loaded }) => loaded) ?? first).name });
  }, [models.value, state]);
}

function ModelSelect({ state }: { state: ChatState }) {
  const names = models.value?.filter(canChat).map(({ name }) => name) ?? [];
  const model = state.chat.value.model;
  const gone = model !== '' && !names.includes(model);
  if (names.length === 0 && model === '') return <span class="hint">{modelsFailure.value || models.value === null ? '' : 'No model'}</span>;
  return (
    <label class="model-select">
      <span class="offscreen">Model</span>
      <select value={model} onChange={(event) => void chats.change(state, { model: event.currentTarget.value })}>
        {gone && <option value={model}>{models.value === null ? model : `${model} (not on this node)`}</option>}
        {names.map((name) => (
          <option key={name} value={name}>
            {name}
          </option>
        ))}
      </select>
    </label>
  );
}

function Welcome() {
  const none = models.value !== null && models.value.filter(canChat).length === 0;
  return (
    <div class="welcome">
      <Mark />
      {none ? (
        <p>
          There is no model on this node yet. <a href={href('models')}>Pull one</a>, then come back.
        </p>
      ) : (
        <p>What you ask is answered on your own machines and kept in this browser.</p>
      )}
      {modelsFailure.value && <p class="note bad">{modelsFailure.value.message}</p>}
    </div>
  );
}
