// How this page reaches each node: by way of the one that serves the page.

import { signal } from '@preact/signals';

/** Id of the node that serves this page; '' until it is known. */
export const self = signal('');

/** at is the address of a route of a node; '' is the node that serves the page. */
export function at(node: string, path: string): string {
  return node === self.value || node === '' ? path : `/admin/nodes/${encodeURIComponent(node)}${path}`;
}
