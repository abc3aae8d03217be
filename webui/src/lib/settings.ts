// Small choices of the person at this browser. Storage may be forbidden or
// full; then a choice lasts as long as the page.

import { signal } from '@preact/signals';

const prefix = 'tandem.';

export function read(key: string, store: 'local' | 'session' = 'local'): string | null {
  try {
    return storage(store).getItem(prefix + key);
  } catch {
    return null;
  }
}

export function write(key: string, value: string | null, store: 'local' | 'session' = 'local'): void {
  try {
    if (value === null) storage(store).removeItem(prefix + key);
    else storage(store).setItem(prefix + key, value);
  } catch {
    // Forbidden or full: see above.
  }
}

function storage(store: 'local' | 'session'): Storage {
  return store === 'local' ? localStorage : sessionStorage;
}

export type Theme = 'auto' | 'light' | 'dark';

export const theme = signal<Theme>(asTheme(read('theme')));

function asTheme(value: string | null): Theme {
  return value === 'light' || value === 'dark' ? value : 'auto';
}

/** setTheme applies a theme to the document and keeps it; auto follows the system. */
export function setTheme(value: Theme): void {
  theme.value = value;
  write('theme', value === 'auto' ? null : value);
  applyTheme();
}

export function applyTheme(): void {
  if (theme.value === 'auto') delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme.value;
}
