// What the whole page shares.

import { Chats } from './chat/chats';

export const chats = new Chats();
