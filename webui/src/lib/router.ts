// Hash routes: the page works at / and at /ui/ alike, and the server needs to
// know none of them.

import { signal } from '@preact/signals';

/** The parts of the address behind #/, for example ["chat", "4f…"]. */
export const route = signal<string[]>(parse(location.hash));

function parse(hash: string): string[] {
  return hash
    .replace(/^#\/?/, '')
    .split('/')
    .filter((part) => part !== '')
    .map(decode);
}

function decode(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

export function href(...parts: string[]): string {
  return '#/' + parts.map(encodeURIComponent).join('/');
}

export function go(...parts: string[]): void {
  location.hash = href(...parts);
}

/** replace changes the address without a new entry in the history. */
export function replace(...parts: string[]): void {
  history.replaceState(null, '', href(...parts));
  route.value = parse(location.hash);
}

export function startRouter(): void {
  addEventListener('hashchange', () => {
    route.value = parse(location.hash);
  });
}
