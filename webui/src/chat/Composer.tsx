import { useEffect, useLayoutEffect, useRef } from 'preact/hooks';
import { read, write } from '../lib/settings';
import { chats } from '../state';
import { Icon } from '../ui/Icon';
import type { ChatState } from './chats';
import { sends } from './keys';

/** Composer is where questions are written. What was not sent yet survives a reload and a look at another chat. */
export function Composer({ state, ready }: { state: ChatState; ready: boolean }) {
  const area = useRef<HTMLTextAreaElement>(null);
  const draftKey = state.saved ? `draft.${state.id}` : 'draft';
  const live = state.live.value !== null;
  const elsewhere = state.elsewhere.value;

  useLayoutEffect(() => {
    if (!area.current) return;
    area.current.value = read(draftKey, 'session') ?? '';
    fit(area.current);
    if (matchMedia('(pointer: fine)').matches) area.current.focus();
  }, [state]);

  useEffect(() => {
    if (!live) return;
    const onKeyDown = (event: KeyboardEvent) => {
      if (event.key === 'Escape' && document.querySelector('dialog[open], :popover-open') === null) chats.stop(state);
    };
    addEventListener('keydown', onKeyDown);
    return () => removeEventListener('keydown', onKeyDown);
  }, [live, state]);

  const send = () => {
    const text = area.current?.value.trim() ?? '';
    if (!area.current || text === '' || !ready || state.busy) return;
    area.current.value = '';
    write(draftKey, null, 'session');
    fit(area.current);
    void chats.send(state, text);
  };
  const onKeyDown = (event: KeyboardEvent) => {
    if (!sends(event)) return;
    event.preventDefault();
    send();
  };
  const onInput = () => {
    if (!area.current) return;
    fit(area.current);
    write(draftKey, area.current.value || null, 'session');
  };
  return (
    <div class="composer">
      {elsewhere && <p class="hint">Another tab is receiving an answer in this chat.</p>}
      <div class="composer-box">
        <textarea ref={area} rows={1} aria-label="Message" placeholder="Ask something" onInput={onInput} onKeyDown={onKeyDown} />
        {live ? (
          <button type="button" class="button icon-only primary" aria-label="Stop" title="Stop (Esc)" onClick={() => chats.stop(state)}>
            <Icon name="stop" />
          </button>
        ) : (
          <button type="button" class="button icon-only primary" aria-label="Send" title="Send (Enter)" disabled={!ready || elsewhere} onClick={send}>
            <Icon name="send" />
          </button>
        )}
      </div>
    </div>
  );
}

/** fit gives the field the height of its text; the style sheet bounds it. */
function fit(area: HTMLTextAreaElement): void {
  area.style.height = 'auto';
  area.style.height = `${area.scrollHeight}px`;
}
