import { useSignal } from '@preact/signals';
import { useEffect, useRef } from 'preact/hooks';
import { href, route } from '../lib/router';
import { chats } from '../state';
import { Icon } from '../ui/Icon';
import { Menu } from '../ui/Menu';
import { deleteChat, readChats, saveChats } from './actions';
import type { Chat } from './types';

/** ChatList is the history of this browser, by day. */
export function ChatList() {
  const failure = useSignal<string | null>(null);
  const picker = useRef<HTMLInputElement>(null);
  const importFile = async (input: HTMLInputElement) => {
    const file = input.files?.[0];
    input.value = '';
    if (!file) return;
    failure.value = await readChats(file).then(
      () => null,
      (err: Error) => err.message,
    );
  };
  const list = chats.list.value;
  return (
    <nav class="history" aria-label="Chats">
      <div class="history-head">
        <h2>Chats</h2>
        <Menu label="Import and export">
          <button type="button" onClick={() => picker.current?.click()}>
            <Icon name="upload" /> Import from a file…
          </button>
          <button type="button" disabled={list.length === 0} onClick={() => saveChats(list, 'tandem chats')}>
            <Icon name="download" /> Export all
          </button>
        </Menu>
        <input ref={picker} type="file" accept=".json,application/json" hidden data-test="import" onChange={(event) => importFile(event.currentTarget)} />
      </div>
      {failure.value && (
        <p class="note bad" role="alert">
          {failure.value}
        </p>
      )}
      {chats.notKept.value && <p class="note warn">Chats are not kept when this page is closed: {chats.notKept.value}</p>}
      {list.length === 0 && <p class="hint">Chats are kept in this browser only.</p>}
      {groups(list).map(([day, group]) => (
        <section key={day} aria-label={day}>
          <h3>{day}</h3>
          <ul>
            {group.map((chat) => (
              <ChatItem key={chat.id} chat={chat} />
            ))}
          </ul>
        </section>
      ))}
    </nav>
  );
}

function ChatItem({ chat }: { chat: Chat }) {
  const renaming = useSignal(false);
  const current = route.value[0] === 'chat' && route.value[1] === chat.id;
  if (renaming.value) return <RenameItem chat={chat} done={() => (renaming.value = false)} />;
  return (
    <li class={current ? 'chat-item current' : 'chat-item'}>
      <a href={href('chat', chat.id)} aria-current={current ? 'page' : undefined} title={chat.title}>
        {chats.running.value.has(chat.id) && <span class="pulse" role="img" aria-label="Answering" />}
        <span class="clip">{chat.title}</span>
      </a>
      <Menu label={`Actions for ${chat.title}`}>
        <button type="button" onClick={() => (renaming.value = true)}>
          <Icon name="edit" /> Rename
        </button>
        <button type="button" onClick={() => saveChats([chat], chat.title)}>
          <Icon name="download" /> Export
        </button>
        <button type="button" class="bad" onClick={() => deleteChat(chat)}>
          <Icon name="trash" /> Delete…
        </button>
      </Menu>
    </li>
  );
}

function RenameItem({ chat, done }: { chat: Chat; done: () => void }) {
  const input = useRef<HTMLInputElement>(null);
  useEffect(() => input.current?.select(), []);
  const ended = useRef(false);
  const end = (keep: boolean) => {
    // Removing the field blurs it, which ends it a second time.
    if (ended.current) return;
    ended.current = true;
    if (keep && input.current) void chats.rename(chat.id, input.current.value);
    done();
  };
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key === 'Enter') end(true);
    if (event.key === 'Escape') end(false);
  };
  return (
    <li class="chat-item">
      <input ref={input} class="rename" aria-label="Name of the chat" maxLength={200} defaultValue={chat.title} onKeyDown={onKeyDown} onBlur={() => end(true)} />
    </li>
  );
}

/** groups keeps the order of the list and names each part by its day. */
export function groups(list: Chat[], now = new Date()): [string, Chat[]][] {
  const midnight = new Date(now.getFullYear(), now.getMonth(), now.getDate()).getTime();
  const day = 24 * 3600 * 1000;
  const parts = new Map<string, Chat[]>();
  for (const chat of list) {
    const name = chat.updated >= midnight ? 'Today' : chat.updated >= midnight - day ? 'Yesterday' : chat.updated >= midnight - 7 * day ? 'Last seven days' : 'Earlier';
    parts.set(name, [...(parts.get(name) ?? []), chat]);
  }
  return [...parts];
}
