import { render } from 'preact';
import { App } from './app';
import { startRouter } from './lib/router';
import { applyTheme } from './lib/settings';
import { chats } from './state';
import './styles/base.css';
import './styles/shell.css';
import './styles/chat.css';
import './styles/markdown.css';
import './styles/pages.css';

applyTheme();
startRouter();
addEventListener('pagehide', () => chats.rescue());
// An address may name a chat, so the history is opened before anything is shown.
void chats.start().then(() => {
  const root = document.getElementById('app');
  if (root) render(<App />, root);
});
