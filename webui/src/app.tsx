import { signal, useSignalEffect } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import type { FunctionComponent } from 'preact';
import { ChatList } from './chat/ChatList';
import { ChatPage } from './chat/ChatPage';
import { reachable } from './lib/api';
import { href, route } from './lib/router';
import { setTheme, theme, type Theme } from './lib/settings';
import { Announcer } from './ui/announce';
import { ConfirmDialog } from './ui/Dialog';
import { Icon, Mark, type IconName } from './ui/Icon';
import { KeyDialog } from './ui/KeyDialog';
import { lazy } from './ui/lazy';

interface PageRoute {
  path: string; // first part of the address behind #/
  label: string;
  icon: IconName;
  page: FunctionComponent;
}

/** Every page of the shell, in the order of the navigation. The first is the start page. */
const pages: PageRoute[] = [
  { path: 'chat', label: 'Chat', icon: 'chat', page: ChatPage },
  { path: 'cluster', label: 'Cluster', icon: 'cluster', page: lazy(async () => (await import('./pages/ClusterPage')).ClusterPage) },
  { path: 'requests', label: 'Requests', icon: 'requests', page: lazy(async () => (await import('./pages/RequestsPage')).RequestsPage) },
  { path: 'kv', label: 'KV', icon: 'kv', page: lazy(async () => (await import('./pages/KVPage')).KVPage) },
  { path: 'models', label: 'Models', icon: 'models', page: lazy(async () => (await import('./pages/ModelsPage')).ModelsPage) },
  { path: 'planner', label: 'Planner', icon: 'planner', page: lazy(async () => (await import('./pages/PlannerPage')).PlannerPage) },
  { path: 'connect', label: 'Connect', icon: 'connect', page: lazy(async () => (await import('./pages/ConnectPage')).ConnectPage) },
];

/** Addresses of pages that have another one now. */
const renamed: Record<string, string> = { status: 'cluster' };

const narrow = matchMedia('(max-width: 799px)');
const drawerOpen = signal(false);
/** The chat that was looked at last: where the way back from other pages leads. */
const lastChat = signal<string[]>(['chat']);

export function App() {
  const current = pages.find(({ path }) => path === (renamed[route.value[0] ?? ''] ?? route.value[0])) ?? pages[0]!;
  const open = drawerOpen.value;
  useDrawer();
  return (
    <div class={open ? 'shell drawer-open' : 'shell'}>
      <header class="topbar">
        <button type="button" class="button icon-only quiet" aria-label="Menu" aria-expanded={open} aria-controls="side" onClick={() => (drawerOpen.value = !open)}>
          <Icon name="menu" />
        </button>
        <Brand />
        <a class="button icon-only quiet" href={href('chat')} aria-label="New chat">
          <Icon name="plus" />
        </a>
      </header>
      <div class="backdrop" onClick={() => (drawerOpen.value = false)} />
      <Side current={current} />
      <main id="main" tabIndex={-1} inert={open}>
        {!reachable.value && (
          <p class="banner" role="alert">
            This node does not answer. The page goes on when it does.
          </p>
        )}
        <current.page />
      </main>
      <Announcer />
      <ConfirmDialog />
      <KeyDialog />
    </div>
  );
}

/** useDrawer closes the drawer of a narrow page when it has been used, or Escape is pressed. */
function useDrawer(): void {
  useSignalEffect(() => {
    if (route.value[0] === 'chat') lastChat.value = route.value;
    drawerOpen.value = false;
  });
  useEffect(() => {
    const close = () => (drawerOpen.value = false);
    const onKeyDown = (event: KeyboardEvent) => {
      if (event.key === 'Escape') close();
    };
    addEventListener('keydown', onKeyDown);
    narrow.addEventListener('change', close);
    return () => {
      removeEventListener('keydown', onKeyDown);
      narrow.removeEventListener('change', close);
    };
  }, []);
}

function Brand() {
  return (
    <a class="brand" href={href('chat')}>
      <Mark /> tandem
    </a>
  );
}

function Side({ current }: { current: PageRoute }) {
  return (
    <aside class="side" id="side" aria-label="Pages and chats">
      <button type="button" class="skip" onClick={() => document.getElementById('main')?.focus()}>
        Skip to content
      </button>
      <Brand />
      <a class="button primary new-chat" href={href('chat')}>
        <Icon name="plus" /> New chat
      </a>
      <nav aria-label="Pages">
        <ul class="pages">
          {pages.map(({ path, label, icon }) => (
            <li key={path}>
              <a href={path === 'chat' ? href(...lastChat.value) : href(path)} aria-current={path === current.path ? 'page' : undefined}>
                <Icon name={icon} /> {label}
              </a>
            </li>
          ))}
        </ul>
      </nav>
      <ChatList />
      <ThemeButton />
    </aside>
  );
}

const themes: Record<Theme, { next: Theme; icon: IconName; label: string }> = {
  auto: { next: 'light', icon: 'auto', label: 'Colours of the system' },
  light: { next: 'dark', icon: 'sun', label: 'Light colours' },
  dark: { next: 'auto', icon: 'moon', label: 'Dark colours' },
};

function ThemeButton() {
  const { next, icon, label } = themes[theme.value];
  return (
    <button type="button" class="button quiet theme" title="Change colours" onClick={() => setTheme(next)}>
      <Icon name={icon} /> {label}
    </button>
  );
}
