// What the chat list can do with chats: files in and out, and deletion.

import { go, route } from '../lib/router';
import { chats } from '../state';
import { announce } from '../ui/announce';
import { confirm } from '../ui/Dialog';
import { exportChats, importChats, maxFileBytes } from './transfer';
import type { Chat } from './types';

export async function deleteChat(chat: Chat): Promise<void> {
  if (!(await confirm('Delete this chat?', `“${chat.title}” will be gone from this browser.`, 'Delete'))) return;
  if (route.value[1] === chat.id) go('chat');
  await chats.remove(chat.id);
  announce('Chat deleted');
}

export async function saveChats(list: Chat[], name: string): Promise<void> {
  const whole = await Promise.all(list.map(async (chat) => ({ chat, messages: await chats.messages(chat.id) })));
  const url = URL.createObjectURL(new Blob([exportChats(whole)], { type: 'application/json' }));
  const link = document.createElement('a');
  link.href = url;
  link.download = `${name.replace(/[^\p{L}\p{N} _-]+/gu, '').trim().slice(0, 60) || 'chat'}.json`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}

/** readChats adds the chats of a file and opens the first. It throws with what is wrong with the file. */
export async function readChats(file: File): Promise<void> {
  if (file.size > maxFileBytes) throw new Error(`The file has ${file.size} bytes; ${maxFileBytes} can be read.`);
  const read = importChats(await file.text(), Date.now());
  await chats.insert(read);
  announce(`${read.length} chats imported`);
  if (read[0]) go('chat', read[0].chat.id);
}
