import { useSignal } from '@preact/signals';
import { useEffect, useRef } from 'preact/hooks';
import { chats } from '../state';
import { CopyButton } from '../ui/CopyButton';
import { Icon } from '../ui/Icon';
import { memo } from '../ui/memo';
import type { ChatState } from './chats';
import { sends } from './keys';
import { roomFor } from './near';
import type { UserMessage } from './types';

interface Props {
  state: ChatState;
  message: UserMessage;
  editable: boolean;
}

/** UserTurn is a question. The last one can be changed and sent again. */
export const UserTurn = memo(function UserTurn({ state, message, editable }: Props) {
  const editing = useSignal(false);
  if (editing.value) {
    const send = (text: string) => {
      editing.value = false;
      void chats.edit(state, message, text);
    };
    return (
      <article class="turn user">
        <h2 class="offscreen">You</h2>
        <Editor text={message.text} onSend={send} onCancel={() => (editing.value = false)} />
      </article>
    );
  }
  return (
    <article class="turn user" style={roomFor(message.text)}>
      <h2 class="offscreen">You</h2>
      <div class="bubble">{message.text}</div>
      <div class="actions">
        <CopyButton text={message.text} label="Copy question" />
        {editable && (
          <button type="button" class="button quiet" aria-label="Edit question" onClick={() => (editing.value = true)}>
            <Icon name="edit" /> Edit
          </button>
        )}
      </div>
    </article>
  );
});

function Editor({ text, onSend, onCancel }: { text: string; onSend: (text: string) => void; onCancel: () => void }) {
  const area = useRef<HTMLTextAreaElement>(null);
  useEffect(() => area.current?.focus(), []);
  const send = () => {
    const changed = area.current?.value.trim() ?? '';
    if (changed !== '') onSend(changed);
  };
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key === 'Escape') {
      event.stopPropagation();
      onCancel();
    } else if (sends(event)) {
      event.preventDefault();
      send();
    }
  };
  return (
    <div class="editor">
      <textarea ref={area} aria-label="Change the question" defaultValue={text} onKeyDown={onKeyDown} />
      <div class="row end">
        <button type="button" class="button" onClick={onCancel}>
          Cancel
        </button>
        <button type="button" class="button primary" onClick={send}>
          Send again
        </button>
      </div>
    </div>
  );
}
