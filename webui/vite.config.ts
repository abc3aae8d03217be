import { loadEnv } from 'vite';
import { defineConfig } from 'vitest/config';

// The API of a running node is proxied in development: NODE_URL=http://127.0.0.1:9494 npm run dev
const node = loadEnv('', '.', 'NODE_').NODE_URL ?? 'http://127.0.0.1:9494';
const proxy = Object.fromEntries(['/v1', '/api', '/admin', '/healthz', '/readyz', '/metrics'].map((path) => [path, node]));

export default defineConfig({
  base: '/ui/',
  oxc: { jsx: { runtime: 'automatic', importSource: 'preact' } },
  build: {
    target: 'es2022',
    cssTarget: ['chrome123', 'firefox121', 'safari17.5'],
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    license: { fileName: 'licenses.md' },
  },
  server: { proxy },
  test: { environment: 'jsdom', include: ['test/**/*.test.ts'] },
});
