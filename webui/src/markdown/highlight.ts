// Colours for code, one block at a time while the browser is idle.

import { safeNodes } from './sanitise';

/** Longer code stays plain: colours are not worth a stutter. */
const maxLength = 30_000;
const maxLineLength = 2_000;

type Job = () => void;
const jobs: Job[] = [];
let scheduled = false;

/** colour replaces the text of a code element with coloured spans of the same text, unless it is gone or changed by then. */
export function colour(element: HTMLElement, code: string, language: string): void {
  if (language === '' || code.length > maxLength || code.split('\n').some((line) => line.length > maxLineLength)) return;
  void import('./languages').then(({ highlight }) =>
    enqueue(() => {
      if (!element.isConnected || element.textContent !== code) return;
      const html = highlight(code, language);
      if (html !== null) element.replaceChildren(safeNodes(html));
    }),
  );
}

function enqueue(job: Job): void {
  jobs.push(job);
  if (scheduled) return;
  scheduled = true;
  whenIdle(work);
}

function work(): void {
  jobs.shift()?.();
  scheduled = jobs.length > 0;
  if (scheduled) whenIdle(work);
}

function whenIdle(run: () => void): void {
  // Safari has no idle callback.
  if ('requestIdleCallback' in window) requestIdleCallback(run, { timeout: 1000 });
  else setTimeout(run, 20);
}
