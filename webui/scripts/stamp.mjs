// Writes dist.sum: the SHA-256 of every source of the page and of every built
// file, one "HASH  PATH" a line. The Go test compares it with the files, so
// that dist cannot silently lag behind the sources or be changed by hand; so
// does --check, which writes nothing.

import { createHash } from 'node:crypto';
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';

const single = ['index.html', 'package.json', 'package-lock.json', 'tsconfig.json', 'vite.config.ts'];
const folders = ['src', 'dist'];

const inside = folders.flatMap((folder) =>
  readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => `${entry.parentPath ?? entry.path}/${entry.name}`),
);
const lines = [...single, ...inside].sort().map((path) => `${createHash('sha256').update(readFileSync(path)).digest('hex')}  ${path}\n`);

if (process.argv.includes('--check')) {
  if (readFileSync('dist.sum', 'utf8') !== lines.join('')) {
    console.error('dist was not built from these sources; run `make webui`');
    process.exit(1);
  }
} else {
  writeFileSync('dist.sum', lines.join(''));
}
