/** newId is a random id of 96 bits. crypto.randomUUID is missing on plain http, where most nodes are reached. */
export function newId(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(12));
  return Array.from(bytes, (b) => b.toString(16).padStart(2, '0')).join('');
}
