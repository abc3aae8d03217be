// A small stand-in for a node: it serves the built page with the real headers
// and plays the API. What an answer does is asked for by a word in the
// question, see behaviours.

import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { extname, join, normalize } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = fileURLToPath(new URL('..', import.meta.url));
const media = { '.html': 'text/html; charset=utf-8', '.js': 'text/javascript; charset=utf-8', '.css': 'text/css; charset=utf-8', '.svg': 'image/svg+xml' };

/** The policy is read from the Go source, so that the page is tested under the one that it gets. */
function contentSecurityPolicy() {
  const source = readFileSync(join(root, 'webui.go'), 'utf8');
  const [, value] = /const contentSecurityPolicy = ((?:"[^"]*"(?:\s*\+\s*)?)+)/.exec(source) ?? [];
  if (!value) throw new Error('webui.go has no contentSecurityPolicy');
  return [...value.matchAll(/"([^"]*)"/g)].map(([, part]) => part).join('');
}

const sample = `Here is **how**, in short:

1. Read the prompt
2. Write the answer

| box | role | tokens/s |
|---|---|--:|
| attic | prefill | 1,240 |
| cellar | decode | 38 |

\`\`\`python
def greet(name: str) -> str:
    """Say hello."""
    return f"Hello, {name}!"  # done
\`\`\`

> Both wheels turn.

See [the docs](https://example.com/docs) or \`tandem --help\`.`;

const wait = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** Each yields pieces: a string, {reasoning}, {error}, {finish} or {cut: true}. */
const behaviours = {
  async *runon() {
    for (let i = 0; ; i++) {
      yield `word${i} `;
      await wait(20);
    }
  },
  async *fail() {
    for (let i = 0; i < 30; i++) yield `part${i} `;
    yield { error: { message: 'the engine stopped', type: 'server_error', code: 'engine_failed' } };
  },
  async *cut() {
    for (let i = 0; i < 20; i++) yield `part${i} `;
    await wait(100);
    yield { cut: true };
  },
  async *fill() {
    for (let i = 0; i < 40; i++) yield `full${i} `;
    yield { finish: 'length', prompt: 4056 };
  },
  async *think() {
    for (const word of ['Let', ' me', ' see', '.', ' Two', ' and', ' two', '…']) {
      yield { reasoning: word };
      await wait(60);
    }
    for (const word of ['It', ' is', ' four', '.']) {
      yield word;
      await wait(30);
    }
  },
  async *show() {
    for (const piece of sample.match(/[\s\S]{1,6}/g)) {
      yield piece;
      await wait(8);
    }
  },
  async *long() {
    const block = sample + '\n\n';
    for (let i = 0; i < 150; i++) {
      yield block;
      if (i % 5 === 0) await wait(10);
    }
  },
  async *spell(question) {
    const [, word] = /^spell (\w+)/.exec(question);
    for (let i = 0; i < 60; i++) {
      yield `${word} `;
      await wait(60);
    }
  },
  async *say() {
    for (const word of ['Hello', ' there', '.']) yield word;
  },
};

export async function startFakeNode() {
  const policy = contentSecurityPolicy();
  const state = {
    key: '', // asked for if set
    running: 0,
    requests: [], // bodies of completions
    models: ['tandem-135m:latest', 'other-1b', 'embed-small'],
    loaded: new Set(['tandem-135m:latest']),
    generated: 0,
    kv: kvPrefixes(),
  };

  const server = createServer((request, response) => {
    handle(request, response).catch((err) => {
      if (!response.headersSent) response.writeHead(500);
      response.end(String(err));
    });
  });

  async function handle(request, response) {
    const { pathname } = new URL(request.url, 'http://node');
    if (pathname === '/' || pathname.startsWith('/ui')) return page(pathname, response);
    if (pathname === '/healthz') return response.end('ok');
    if (state.key && request.headers.authorization !== `Bearer ${state.key}`) {
      return json(response, { error: { message: 'a valid API key is needed', type: 'invalid_request_error', param: null, code: 'invalid_api_key' } }, 401);
    }
    const body = await readBody(request);
    switch (`${request.method} ${pathname}`) {
      case 'GET /v1/models':
        return json(response, { object: 'list', data: state.models.map((id) => ({ id: id.replace(':latest', ''), object: 'model', context_length: 4096, source: id === 'other-1b' ? 'ollama' : 'tandem' })) });
      case 'GET /api/tags':
        return json(response, { models: state.models.map(ollamaModel) });
      case 'GET /api/ps':
        return json(response, { models: [...state.loaded].map((name) => ({ ...ollamaModel(name), size: 220e6, expires_at: new Date(Date.now() + 240e3).toISOString() })) });
      case 'POST /api/pull':
        return pull(body, response);
      case 'DELETE /api/delete':
        state.models = state.models.filter((name) => plain(name) !== plain(body.model));
        return response.end();
      case 'POST /api/generate': {
        const name = state.models.find((known) => plain(known) === plain(body.model));
        if (body.keep_alive === 0) state.loaded.delete(name);
        else state.loaded.add(name);
        return json(response, { done: true });
      }
      case 'GET /admin/status':
        return json(response, status());
      case 'GET /admin/kv':
        return json(response, kv());
      case 'GET /admin/kv/prefixes':
        return json(response, { prefixes: state.kv, total: state.kv.length + 3 });
      case 'POST /admin/kv/pin':
      case 'POST /admin/kv/unpin': {
        const prefix = state.kv.find(({ id }) => id === body.id);
        if (!prefix) return json(response, { error: { message: 'no such block is held', type: 'invalid_request_error', param: 'id', code: 'block_not_found' } }, 404);
        prefix.pinned = pathname.endsWith('/pin');
        return json(response, { id: body.id, pinned: prefix.pinned });
      }
      case 'POST /admin/kv/evict': {
        const prefix = state.kv.find(({ first }) => first === body.id);
        if (prefix?.pinned) return json(response, { ram_blocks: 0, disk_blocks: 0, kept: prefix.blocks });
        state.kv = state.kv.filter((other) => other !== prefix);
        return json(response, { ram_blocks: prefix.ram_blocks, disk_blocks: prefix.disk_blocks, kept: 0 });
      }
      case 'GET /admin/events':
        return events(response);
      case 'POST /v1/chat/completions':
        return complete(request, body, response);
      default:
        return json(response, { error: { message: `no route ${pathname}` } }, 404);
    }
  }

  const plain = (name) => name.replace(/:latest$/, '');

  function ollamaModel(name) {
    const embeds = name.startsWith('embed');
    return { name, size: 144e6, details: { family: 'llama', parameter_size: '135M', quantization_level: 'Q8_0' }, capabilities: embeds ? ['embedding'] : ['completion'] };
  }

  function page(pathname, response) {
    const path = pathname.startsWith('/ui/assets/') ? normalize(pathname.slice('/ui'.length)) : '/index.html';
    let content;
    try {
      content = readFileSync(join(root, 'dist', path));
    } catch {
      response.writeHead(404);
      return response.end();
    }
    response.writeHead(200, { 'Content-Type': media[extname(path)] ?? 'application/octet-stream', 'Content-Security-Policy': policy, 'X-Content-Type-Options': 'nosniff', 'Cache-Control': 'no-cache' });
    return response.end(content);
  }

  async function pull({ model }, response) {
    response.writeHead(200, { 'Content-Type': 'application/x-ndjson' });
    const line = (value) => response.write(JSON.stringify(value) + '\n');
    line({ status: 'pulling manifest' });
    if (model.includes('missing')) return response.end(JSON.stringify({ error: `model "${model}" is not in the registry` }) + '\n');
    const total = 144e6;
    for (let completed = 0; completed <= total && !response.destroyed; completed += total / 20) {
      line({ status: 'downloading', digest: 'sha256:1', total, completed });
      await wait(60);
    }
    if (response.destroyed) return;
    state.models.push(model);
    line({ status: 'success' });
    response.end();
  }

  function status() {
    const model = (name) => ({
      name,
      memory_bytes: 220e6,
      context: 4096,
      slots: 4,
      running: state.running,
      queued: 0,
      kv_tokens: 812,
      kv_cells: 16384,
      resident_tokens: 2048,
      prompt_tokens_computed: 4100,
      prompt_tokens_reused: 9800,
      tokens_generated: state.generated,
    });
    return {
      node: { id: 'n1', name: 'attic', role: 'hybrid', version: '0.1.0', ready: true, uptime_seconds: 4210 },
      requests: { running: state.running, queued: 0 },
      cluster: state.cluster,
      open_streams: state.running,
      models: [...state.loaded].map(model),
      devices: [{ name: 'CPU', description: '8 cores', kind: 'cpu' }],
    };
  }

  function kv() {
    const sum = (field) => state.kv.reduce((total, prefix) => total + prefix[field], 0);
    return {
      enabled: true,
      ram: { blocks: sum('ram_blocks'), bytes: sum('ram_bytes'), budget: 1 << 30 },
      disk: { blocks: sum('disk_blocks'), bytes: sum('disk_bytes'), budget: 10 * (1 << 30) },
      queue: { blocks: 2, bytes: 2.8e6 },
      pins: state.kv.filter(({ pinned }) => pinned).length,
      tokens_spared: 48_120,
      seconds_spared: 318.4,
      models: [
        { name: 'tandem-135m', loaded: true, kept: true, block_tokens: 64, block_bytes: 1_474_560, tokens_spared: 48_120, seconds_per_token: 0.0066, seconds_spared: 318.4 },
        { name: 'mamba-130m', loaded: true, kept: false, reason: 'its state after a prefix cannot be taken apart by tokens (recurrent layers)', tokens_spared: 0, seconds_per_token: 0, seconds_spared: 0 },
      ],
    };
  }

  function events(response) {
    response.writeHead(200, { 'Content-Type': 'text/event-stream' });
    const send = (kind, data) => response.write(`event: ${kind}\ndata: ${JSON.stringify({ time: new Date().toISOString(), kind, data })}\n\n`);
    send('model_loaded', { model: 'tandem-135m', seconds: 0.8, device: 'cpu', context: 4096, slots: 4 });
    const timer = setInterval(
      () => send('request_finished', { id: 'chatcmpl-1', endpoint: 'chat', model: 'tandem-135m', outcome: 'stop', status: 200, prompt_tokens: 612, cached_tokens: 576, completion_tokens: 48, ttft_seconds: 0.05, seconds: 1.3 }),
      700,
    );
    response.on('close', () => clearInterval(timer));
  }

  async function complete(request, body, response) {
    state.requests.push(body);
    const question = body.messages.findLast(({ role }) => role === 'user')?.content ?? '';
    const word = question.startsWith('Continue your last answer') ? 'say' : question.split(' ')[0];
    if (word === 'toolong') {
      const message = 'the prompt has 5000 tokens, but the context holds 4096, of which at least one is kept for the answer';
      return json(response, { error: { message, type: 'invalid_request_error', param: 'messages', code: 'context_length_exceeded' } }, 400);
    }
    if (word === 'busy') {
      response.setHeader('Retry-After', '3');
      return json(response, { error: { message: 'the queue of this model is full', type: 'server_error', param: null, code: 'overloaded' } }, 503);
    }
    let open = true;
    const closed = () => {
      if (open) state.running--;
      open = false;
    };
    state.running++;
    response.on('close', closed);
    response.writeHead(200, { 'Content-Type': 'text/event-stream', 'X-Tandem-Node': 'attic', 'X-Tandem-Prefill': 'local', 'X-Tandem-Reason': 'the prompt was already here: 576 of 612 tokens' });
    const send = (value) => response.write(`data: ${JSON.stringify({ id: 'c', object: 'chat.completion.chunk', model: body.model, ...value })}\n\n`);
    send({ choices: [{ index: 0, delta: { role: 'assistant', content: '' }, finish_reason: null }] });
    response.write(': keep-alive\n\n');
    await wait(150);
    let tokens = 0;
    for await (const piece of (behaviours[word] ?? behaviours.say)(question)) {
      if (!open) return;
      if (piece.cut) return response.destroy();
      if (piece.error) {
        send(piece);
        return response.end();
      }
      if (piece.finish) return finish(piece.finish, piece.prompt);
      tokens++;
      state.generated++;
      send({ choices: [{ index: 0, delta: piece.reasoning ? { reasoning_content: piece.reasoning } : { content: piece }, finish_reason: null }] });
    }
    finish('stop');

    function finish(reason, prompt = 612) {
      send({ choices: [{ index: 0, delta: {}, finish_reason: reason }] });
      send({ choices: [], usage: { prompt_tokens: prompt, completion_tokens: tokens, total_tokens: prompt + tokens, prompt_tokens_details: { cached_tokens: 576 } } });
      response.end('data: [DONE]\n\n');
    }
  }

  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    url: `http://127.0.0.1:${server.address().port}`,
    state,
    close() {
      server.closeAllConnections();
      server.close();
    },
  };
}

/** What a node keeps: a system prompt, a conversation that goes on from it, and one that it knows no words of. */
function kvPrefixes() {
  const block = 1_474_560;
  const prefix = (id, blocks, change) => ({
    id: id.repeat(32),
    first: id.repeat(31) + '0',
    parent: '0'.repeat(32),
    start: 0,
    tokens: 64 * blocks,
    blocks,
    ram_blocks: blocks,
    ram_bytes: blocks * block,
    disk_blocks: blocks,
    disk_bytes: blocks * block,
    uses: 0,
    last_use: '0001-01-01T00:00:00Z',
    tokens_spared: 0,
    pinned: false,
    leased: false,
    branches: 0,
    model: 'tandem-135m',
    ...change,
  });
  return [
    prefix('a', 12, { words: 'You are a careful assistant of a small workshop', uses: 41, last_use: new Date(Date.now() - 75e3).toISOString(), tokens_spared: 31_488, pinned: true, branches: 2 }),
    prefix('b', 30, { words: 'user How do I true a wheel', start: 768, uses: 9, last_use: new Date(Date.now() - 4000e3).toISOString(), tokens_spared: 16_632, ram_blocks: 18, ram_bytes: 18 * block, leased: true }),
    prefix('c', 4, { ram_blocks: 0, ram_bytes: 0, model: undefined }),
  ];
}

function json(response, value, code = 200) {
  response.writeHead(code, { 'Content-Type': 'application/json' });
  response.end(JSON.stringify(value));
}

async function readBody(request) {
  let text = '';
  for await (const piece of request) text += piece;
  return text === '' ? {} : JSON.parse(text);
}

// Run by itself it is something to look at: node e2e/fake-node.mjs
if (process.argv[1] === fileURLToPath(import.meta.url)) console.log((await startFakeNode()).url);
