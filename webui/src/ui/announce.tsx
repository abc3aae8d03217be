import { signal } from '@preact/signals';

const spoken = signal('');

/** announce tells screen readers something that sighted people see happen. */
export function announce(text: string): void {
  // The same words twice in a row are spoken twice only if the text changes.
  spoken.value = spoken.value === text ? `${text}\u00a0` : text;
}

export function Announcer() {
  return (
    <div class="offscreen" role="status" aria-live="polite">
      {spoken.value}
    </div>
  );
}
