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

/** A node of the cluster that the stand-in plays. */
function aNode(id, name, change = {}) {
  return {
    id,
    name,
    state: 'ready', // ready, draining, failed
    role: 'hybrid',
    version: '0.1.0',
    mute: false, // tells nothing of itself
    models: ['tandem-135m:latest'],
    loaded: new Set(['tandem-135m:latest']),
    kv: [],
    generated: 0,
    computed: 4100,
    readMs: 6.6,
    stepMs: 21,
    links: [],
    ...change,
  };
}

export async function startFakeNode() {
  const policy = contentSecurityPolicy();
  const own = aNode('n1', 'attic', { models: ['tandem-135m:latest', 'other-1b', 'embed-small'], kv: kvPrefixes() });
  const state = {
    key: '', // asked for if set
    running: 0,
    requests: [], // bodies of completions
    nodes: [own], // the first serves the page
    cluster: {}, // what status tells of it beside the members
    settings: [
      { name: 'slo_ttft_ms', value: '500', default: '500', allowed: 'a whole number from 1 to 3600000' },
      { name: 'planner', value: 'on', default: 'on', allowed: 'one of on, off' },
    ],
    planner: undefined,
    history: [], // events that are told to pages when they are opened: [node, kind, data, seconds ago]
    asked: [], // what was asked of /admin routes that change something: [node, path, body]
    get models() { return own.models; },
    set models(models) { own.models = models; },
    get loaded() { return own.loaded; },
    get kv() { return own.kv; },
    set kv(kv) { own.kv = kv; },
  };
  const streams = new Set(); // of pages that follow the cluster

  /** Makes a cluster of three nodes; alone undoes it. */
  function cluster() {
    const link = (id, goodput, change = {}) => ({ id, transport: 'quic', addr: '10.0.0.9:9496', rtt_ms: 0.42, streams: 3, kv: [{ transport: 'tcp', goodput, used: true, ...change }, { transport: 'quic', goodput: goodput / 2 }] });
    own.links = [link('n2', 117e6), link('n3', 290e6)];
    state.nodes = [
      own,
      aNode('n2', 'cellar', { role: 'prefill', readMs: 0.8, stepMs: 34, kv: [{ ...own.kv[0], pinned: false, uses: 3, disk_blocks: 0, disk_bytes: 0 }], links: [link('n1', 117e6), link('n3', 290e6)] }),
      aNode('n3', 'garage', { version: '0.1.0', models: [], loaded: new Set(), links: [link('n1', 290e6, { slow: true }), link('n2', 290e6)] }),
    ];
    state.cluster = { quorum: true, leader: 'n2', voters: ['n1', 'n2', 'n3'] };
    state.history = history();
  }

  function alone() {
    state.nodes = [own];
    own.links = [];
    state.cluster = {};
    state.history = [];
    state.planner = undefined;
    state.asked = [];
  }

  const server = createServer((request, response) => {
    handle(request, response).catch((err) => {
      if (!response.headersSent) response.writeHead(500);
      response.end(String(err));
    });
  });

  async function handle(request, response) {
    let { pathname } = new URL(request.url, 'http://node');
    if (pathname === '/' || pathname.startsWith('/ui')) return page(pathname, response);
    if (pathname === '/healthz') return response.end('ok');
    if (state.key && request.headers.authorization !== `Bearer ${state.key}`) {
      return json(response, { error: { message: 'a valid API key is needed', type: 'invalid_request_error', param: null, code: 'invalid_api_key' } }, 401);
    }
    const body = await readBody(request);
    const [, id, route] = /^\/admin\/nodes\/([^/]+)(\/.*)$/.exec(pathname) ?? [];
    const node = id === undefined ? own : state.nodes.find((one) => one.id === id);
    if (node === undefined) return json(response, { error: { message: `node: "${id}" is not the id of a node of this cluster` } }, 404);
    if (node.state === 'failed') return json(response, { error: { message: `node ${id} does not answer now` } }, 503);
    if (route) pathname = route;
    if (request.method === 'POST' && pathname.startsWith('/admin/')) state.asked.push([node.id, pathname, body]);
    switch (`${request.method} ${pathname}`) {
      case 'GET /v1/models':
        return json(response, { object: 'list', data: node.models.map((name) => ({ id: plain(name), object: 'model', context_length: 4096, source: name === 'other-1b' ? 'ollama' : 'tandem', memory_bytes: name === 'other-1b' ? 40e9 : 220e6, capabilities: ollamaModel(name).capabilities })) });
      case 'GET /api/tags':
        return json(response, { models: node.models.map(ollamaModel) });
      case 'GET /api/ps':
        return json(response, { models: [...node.loaded].map((name) => ({ ...ollamaModel(name), size: 220e6, expires_at: new Date(Date.now() + 240e3).toISOString() })) });
      case 'POST /api/pull':
        return pull(node, body, response);
      case 'DELETE /api/delete':
        node.models = node.models.filter((name) => plain(name) !== plain(body.model));
        return response.end();
      case 'POST /admin/models/load': {
        const name = node.models.find((known) => plain(known) === plain(body.model));
        if (body.loaded === false) node.loaded.delete(name);
        else node.loaded.add(name);
        return json(response, { model: body.model, loaded: body.loaded !== false });
      }
      case 'GET /admin/status':
        return json(response, status(node));
      case 'GET /admin/cluster/events':
        return clusterEvents(response);
      case 'GET /admin/cluster/join':
      case 'POST /admin/cluster/join':
        if (body.secret && !state.key) return json(response, { error: { message: 'secret: true: this node asks for no API key, so it does not tell the secret of the cluster' } }, 403);
        return json(response, { address: '10.0.0.1:9495', secret: body.secret === true, command: `NODE_SECRET=${body.secret ? 'correct-horse-battery' : '…'} ./bin/node --join 10.0.0.1:9495`, secret_file: body.secret ? undefined : '/var/lib/tandem/secret' });
      case 'GET /admin/cluster/settings':
      case 'POST /admin/cluster/settings': {
        const setting = state.settings.find(({ name }) => name === body.name);
        if (setting && setting.name === 'slo_ttft_ms' && !/^[1-9]\d*$/.test(body.value)) return json(response, { error: { message: `set: "${body.value}" is not allowed for slo_ttft_ms; allowed: ${setting.allowed}` } }, 400);
        if (setting) setting.value = body.value;
        return json(response, { cluster: 'c', leader: 'n2', quorum: state.cluster.quorum !== false, settings: state.settings });
      }
      case 'POST /admin/cluster/drain':
        node.state = body.on ? 'draining' : 'ready';
        tellStatus();
        return json(response, { draining: body.on, running: 0 });
      case 'POST /admin/cluster/role':
        node.role = body.role;
        tellStatus();
        return json(response, { role: body.role });
      case 'POST /admin/cluster/remove':
        state.nodes = state.nodes.filter((one) => one.id !== body.node);
        tellStatus();
        return json(response, { id: body.node, name: '' });
      case 'GET /admin/kv':
        return json(response, kv(node));
      case 'GET /admin/kv/prefixes':
        return json(response, { prefixes: node.kv, total: node.kv.length + (node === own ? 3 : 0) });
      case 'POST /admin/kv/pin':
      case 'POST /admin/kv/unpin': {
        const prefix = node.kv.find((one) => one.id === body.id);
        if (!prefix) return json(response, { error: { message: 'no such block is held', type: 'invalid_request_error', param: 'id', code: 'block_not_found' } }, 404);
        prefix.pinned = pathname.endsWith('/pin');
        return json(response, { id: body.id, pinned: prefix.pinned });
      }
      case 'POST /admin/kv/evict': {
        const prefix = node.kv.find(({ first }) => first === body.id);
        if (prefix?.pinned) return json(response, { ram_blocks: 0, disk_blocks: 0, kept: prefix.blocks });
        node.kv = node.kv.filter((other) => other !== prefix);
        return json(response, { ram_blocks: prefix.ram_blocks, disk_blocks: prefix.disk_blocks, kept: 0 });
      }
      case 'POST /admin/kv/fetch': {
        const prefix = state.nodes.find((one) => one.id === body.from)?.kv.find((one) => one.id === body.id);
        node.kv.push({ ...prefix, uses: 0, pinned: false });
        return json(response, { blocks: prefix.blocks, bytes: prefix.ram_bytes, held: 0, unknown: 0, orphans: 0, damaged: 0, no_room: 0 });
      }
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

  async function pull(node, { model }, response) {
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
    node.models.push(model);
    line({ status: 'success' });
    response.end();
  }

  function status(node) {
    const model = (name) => ({
      name: plain(name),
      memory_bytes: 220e6,
      context: 4096,
      slots: 4,
      running: node === own ? state.running : 0,
      queued: 0,
      kv_tokens: 812,
      kv_cells: 16384,
      resident_tokens: 2048,
      prompt_tokens_computed: node.computed,
      prompt_tokens_reused: 9800,
      tokens_generated: node.generated,
      rates: { prefill_ms: node.readMs, decode: [{ streams: 1, ms: node.stepMs }], kv_bytes_per_token: 23_040 },
    });
    const members = state.nodes.map(({ id, name, state: how, role, version, models }) => ({ id, name, addr: `http://10.0.0.${id.slice(1)}:9494`, state: how, role, version, models: models.map(plain) }));
    return {
      node: { id: node.id, name: node.name, role: node.role, version: node.version, ready: true, uptime_seconds: 4210 + (Date.now() - started) / 1000 },
      requests: { running: node === own ? state.running : 0, queued: 0 },
      cluster: { id: 'c-1234', leader: 'n1', voters: ['n1'], quorum: true, members, ...state.cluster, links: node.links.filter(({ id }) => state.nodes.some((one) => one.id === id && one.state !== 'failed')) },
      open_streams: node === own ? state.running : 0,
      models: [...node.loaded].map(model),
      devices: [{ name: 'CPU', description: '8 cores', kind: 'cpu', total_bytes: 16e9, free_bytes: 9e9 }],
      memory_bytes: 12e9,
      planner: state.planner,
    };
  }

  function kv(node) {
    const sum = (field) => node.kv.reduce((total, prefix) => total + prefix[field], 0);
    return {
      enabled: true,
      ram: { blocks: sum('ram_blocks'), bytes: sum('ram_bytes'), budget: 1 << 30 },
      disk: { blocks: sum('disk_blocks'), bytes: sum('disk_bytes'), budget: 10 * (1 << 30) },
      queue: { blocks: 2, bytes: 2.8e6 },
      pins: node.kv.filter(({ pinned }) => pinned).length,
      tokens_spared: 48_120,
      seconds_spared: 318.4,
      models: [
        { name: 'tandem-135m', loaded: true, kept: true, block_tokens: 64, block_bytes: 1_474_560, tokens_spared: 48_120, seconds_per_token: 0.0066, seconds_spared: 318.4 },
        { name: 'mamba-130m', loaded: true, kept: false, reason: 'its state after a prefix cannot be taken apart by tokens (recurrent layers)', tokens_spared: 0, seconds_per_token: 0, seconds_spared: 0 },
      ],
    };
  }

  const started = Date.now();
  const line = (node, kind, data, at = Date.now()) => `event: ${kind}\ndata: ${JSON.stringify({ time: new Date(at).toISOString(), node, kind, data })}\n\n`;

  function tell(node, kind, data) {
    for (const stream of streams) stream.write(line(node, kind, data));
  }

  function tellStatus() {
    for (const node of state.nodes) {
      if (node.state === 'failed' || node.mute) continue;
      // Tokens are counted as they would be at a steady pace.
      if (node.loaded.size > 0) node.computed += 120;
      tell(node.id, 'status', status(node));
    }
  }
  const pace = setInterval(tellStatus, 500);

  function clusterEvents(response) {
    response.writeHead(200, { 'Content-Type': 'text/event-stream' });
    response.write(line('n1', 'hello', { node: 'n1' }));
    response.write(line('n1', 'status', status(own)));
    response.write(line('n1', 'model_loaded', { model: 'tandem-135m', seconds: 0.8, device: 'cpu', context: 4096, slots: 4 }));
    for (const [node, kind, data, ago] of state.history) response.write(line(node, kind, data, Date.now() - ago * 1000));
    streams.add(response);
    response.on('close', () => streams.delete(response));
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
    const id = `chatcmpl-${state.requests.length}`;
    const began = Date.now();
    tell('n1', 'request_placed', { id, model: 'tandem-135m', prompt_tokens: 612, choices: 1, decode: 'attic', prefill: 'local', reason: 'the prompt was already here: 576 of 612 tokens' });
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
      own.generated++;
      send({ choices: [{ index: 0, delta: piece.reasoning ? { reasoning_content: piece.reasoning } : { content: piece }, finish_reason: null }] });
    }
    finish('stop');

    function finish(reason, prompt = 612) {
      send({ choices: [{ index: 0, delta: {}, finish_reason: reason }] });
      send({ choices: [], usage: { prompt_tokens: prompt, completion_tokens: tokens, total_tokens: prompt + tokens, prompt_tokens_details: { cached_tokens: 576 } } });
      response.end('data: [DONE]\n\n');
      const seconds = (Date.now() - began) / 1000;
      tell('n1', 'request_finished', { id, endpoint: 'chat', model: 'tandem-135m', outcome: reason, status: 200, prompt_tokens: prompt, cached_tokens: 576, completion_tokens: tokens, ttft_seconds: 0.15, seconds, load_seconds: 0, queue_seconds: 0.01, prefill_seconds: 0.14, decode_seconds: Math.max(0, seconds - 0.16) });
    }
  }

  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address();
  return {
    url: `http://127.0.0.1:${port}`,
    /** The node is gone, with all connections; up brings it back. */
    async down() {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
    up: () => new Promise((resolve) => server.listen(port, '127.0.0.1', resolve)),
    state,
    cluster,
    alone,
    tell,
    close() {
      clearInterval(pace);
      server.closeAllConnections();
      server.close();
    },
  };
}

/** Requests as three nodes told of them: one whose prompt was computed elsewhere, one that fetched KV, one that failed, one that moved. */
function history() {
  const score = (node, seconds, change = {}) => ({ node, seconds, queue_seconds: 0.01, fetch_seconds: 0, prefill_seconds: seconds - 0.01, cached_tokens: 0, ...change });
  const finished = (id, change) => ({ id, endpoint: 'chat', model: 'tandem-135m', outcome: 'stop', status: 200, prompt_tokens: 2400, cached_tokens: 0, completion_tokens: 90, ttft_seconds: 2.4, seconds: 4.4, load_seconds: 0, queue_seconds: 2.2, prefill_seconds: 0.15, decode_seconds: 1.95, ...change });
  return [
    ['n1', 'request_placed', { id: 'chatcmpl-split', model: 'tandem-135m', prompt_tokens: 2400, choices: 1, decode: 'attic', prefill: 'cellar', reason: 'attic is free; cellar computes the prompt in 2.1 s instead of 15.8 s', scores: [score('attic', 2.2), score('cellar', 2.9), score('garage', 0, { why: 'it has not this model' })] }, 64],
    ['n1', 'kv_way_chosen', { id: 'chatcmpl-split', model: 'tandem-135m', prompt_tokens: 2400, ways: [{ kind: 'remote', from: 'cellar', seconds: 2.1 }, { kind: 'local', seconds: 15.8 }], reason: 'cellar computes it sooner' }, 64],
    ['n1', 'kv_moved', { id: 'chatcmpl-split', model: 'tandem-135m', from: 'cellar', made: true, transport: 'tcp', wanted: 37, blocks: 37, bytes: 54.6e6, first_seconds: 0.2, seconds: 2.15, estimate_seconds: 2.1, outcome: 'complete' }, 62],
    ['n1', 'request_finished', finished('chatcmpl-split', {}), 60],
    ['n2', 'request_placed', { id: 'chatcmpl-fetch', model: 'tandem-135m', prompt_tokens: 900, choices: 1, decode: 'cellar', prefill: 'local', reason: 'cellar is faster by 0.3 s' }, 40],
    ['n2', 'kv_moved', { id: 'chatcmpl-fetch', model: 'tandem-135m', from: 'attic', transport: 'tcp', wanted: 12, blocks: 9, bytes: 13e6, first_seconds: 0.02, seconds: 0.12, estimate_seconds: 0.11, outcome: 'missing', error: 'attic has it no more' }, 39],
    ['n2', 'request_finished', finished('chatcmpl-fetch', { prompt_tokens: 900, cached_tokens: 768, completion_tokens: 40, ttft_seconds: 0.3, seconds: 1.7, queue_seconds: 0.13, prefill_seconds: 0.15, decode_seconds: 1.4 }), 38],
    ['n1', 'request_placed', { id: 'chatcmpl-moved', model: 'tandem-135m', prompt_tokens: 80, choices: 1, decode: 'garage', prefill: 'local', reason: 'garage is free' }, 30],
    ['n1', 'request_moved', { id: 'chatcmpl-moved', model: 'tandem-135m', from: 'garage', to: 'attic', tokens: 31, reason: 'node n3: the connection was lost' }, 29],
    ['n1', 'request_finished', finished('chatcmpl-moved', { prompt_tokens: 80, seconds: 3, ttft_seconds: 0.2, queue_seconds: 0, prefill_seconds: 0.2, decode_seconds: 2.7 }), 27],
    ['n1', 'request_finished', finished('chatcmpl-refused', { outcome: 'rejected', status: 429, prompt_tokens: 0, completion_tokens: 0, ttft_seconds: 0, seconds: 0.004, queue_seconds: 0, prefill_seconds: 0, decode_seconds: 0 }), 20],
    ['n2', 'member_changed', { id: 'n3', name: 'garage', state: 'alive', role: 'hybrid' }, 90],
  ];
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

// Run by itself it is something to look at: node e2e/fake-node.mjs [cluster]
if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const fake = await startFakeNode();
  if (process.argv.includes('cluster')) fake.cluster();
  console.log(fake.url);
}
