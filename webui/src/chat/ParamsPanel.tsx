import { useEffect, useRef } from 'preact/hooks';
import { chats } from '../state';
import { Icon } from '../ui/Icon';
import type { ChatState } from './chats';
import type { Params } from './types';

interface NumberField {
  name: 'temperature' | 'top_p' | 'max_tokens' | 'seed';
  label: string;
  hint: string;
  min: number;
  max: number;
  whole?: boolean;
}

const fields: NumberField[] = [
  { name: 'temperature', label: 'Temperature', hint: '0 always takes the most likely token', min: 0, max: 2 },
  { name: 'top_p', label: 'Top P', hint: 'The share of likely tokens that is drawn from', min: 0, max: 1 },
  { name: 'max_tokens', label: 'Longest answer', hint: 'In tokens', min: 1, max: 10_000_000, whole: true },
  { name: 'seed', label: 'Seed', hint: 'The same seed gives the same answer', min: 0, max: Number.MAX_SAFE_INTEGER, whole: true },
];

/** ParamsPanel holds what is sent along with the messages of this chat. */
export function ParamsPanel({ state, onClose }: { state: ChatState; onClose: () => void }) {
  const panel = useRef<HTMLElement>(null);
  useEffect(() => panel.current?.querySelector('textarea')?.focus(), []);
  const params = state.chat.value.params;
  const change = (changed: Partial<Params>) => void chats.change(state, { params: { ...state.chat.value.params, ...changed } });
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key !== 'Escape') return;
    event.stopPropagation();
    onClose();
  };
  return (
    <aside ref={panel} class="params" aria-label="Settings of this chat" onKeyDown={onKeyDown}>
      <header class="row between">
        <h2>This chat</h2>
        <button type="button" class="button icon-only quiet" aria-label="Close settings" onClick={onClose}>
          <Icon name="close" />
        </button>
      </header>
      <label class="field">
        <span>System prompt</span>
        <textarea rows={5} value={params.system ?? ''} onChange={(event) => change({ system: event.currentTarget.value.trim() || undefined })} />
      </label>
      {fields.map((field) => (
        <NumberInput key={field.name} field={field} value={params[field.name]} onChange={(value) => change({ [field.name]: value })} />
      ))}
      <p class="hint">Empty fields leave it to the model. Changes count from the next answer on.</p>
    </aside>
  );
}

interface NumberInputProps {
  field: NumberField;
  value: number | undefined;
  onChange: (value: number | undefined) => void;
}

function NumberInput({ field, value, onChange }: NumberInputProps) {
  const commit = (input: HTMLInputElement) => {
    if (input.reportValidity()) onChange(input.value === '' ? undefined : input.valueAsNumber);
  };
  const hint = `hint-${field.name}`;
  return (
    <div class="field">
      <label for={`param-${field.name}`}>{field.label}</label>
      <input
        id={`param-${field.name}`}
        type="number"
        min={field.min}
        max={field.max}
        step={field.whole ? 1 : 'any'}
        inputMode={field.whole ? 'numeric' : 'decimal'}
        placeholder="model’s own"
        aria-describedby={hint}
        value={value ?? ''}
        onChange={(event) => commit(event.currentTarget)}
      />
      <span id={hint} class="hint">
        {field.hint}
      </span>
    </div>
  );
}
