import { beforeEach, describe, expect, it } from 'vitest';
import { events, eventsKept, looks, nodesOf, requests, self, take, type NodeLook, type SeenNode } from '../src/lib/cluster';
import { diagnose, gigabits, linksOf, memoryOf, wire } from '../src/lib/diagnosis';
import { copiedInWords, together, type KVLook, type KVPrefix } from '../src/lib/kv';
import { fitInWords, modelsOnNodes } from '../src/lib/models';
import { at } from '../src/lib/nodes';
import { readPlanner } from '../src/lib/planner';
import { qr } from '../src/lib/qr';
import { matches, partsOf, Requests, requestsKept, speedOf, wayInWords } from '../src/lib/requests';
import type { Member, NodeEvent, NodeStatus } from '../src/lib/status';
import { goodputBetween, kvBytesOf, speedsOf, splitInWords, splitOf, togetherInWords } from '../src/lib/worth';
import { addressesOf } from '../src/pages/ConnectPage';
import { difference } from '../src/pages/RequestsPage';

const member = (id: string, name: string, state = 'ready', version = '1'): Member => ({ id, name, addr: '', state, role: 'hybrid', version, models: [] });

function status(id: string, name: string, change: Partial<NodeStatus> = {}): NodeStatus {
  return { node: { id, name, role: 'hybrid', version: '1', ready: true, uptime_seconds: 10 }, requests: { running: 0, queued: 0 }, ...change };
}

const look = (of: NodeStatus, at = 1000): NodeLook => ({ at, status: of, rates: null, curve: [], behind: 0 });
const seen = (id: string, name: string, change: Partial<NodeStatus> = {}, state = 'ready'): SeenNode => ({ member: member(id, name, state), look: look(status(id, name, change)), silent: false });

function event(kind: string, data: Record<string, unknown>, seconds = 0, node = 'n1'): NodeEvent {
  return { time: new Date(1_800_000_000_000 + seconds * 1000).toISOString(), node, kind, data };
}

describe('the cluster', () => {
  beforeEach(() => {
    self.value = '';
    looks.value = new Map();
    events.value = [];
    requests.clear();
  });

  it('is put together from one stream', () => {
    take(event('hello', { node: 'n1' }));
    const members = [member('n1', 'attic'), member('n2', 'cellar'), member('n3', 'garage', 'failed')];
    take(event('status', status('n1', 'attic', { cluster: { leader: 'n1', quorum: true, members } }) as never));
    take(event('status', status('n2', 'cellar') as never, 1, 'n2'));
    take(event('status', status('n2', 'an impostor') as never, 1, 'n9'));
    take(event('status', { node: 5 }, 1, 'n2'));
    expect(self.value).toBe('n1');
    const all = nodesOf(looks.value.get('n1')!.status, looks.value, performance.now());
    expect(all.map(({ member: { name }, look: l, silent }) => [name, l !== null, silent])).toEqual([
      ['attic', true, false],
      ['cellar', true, false],
      ['garage', false, false],
    ]);
    const later = nodesOf(looks.value.get('n1')!.status, looks.value, performance.now() + 60_000);
    expect(later.map(({ silent }) => silent)).toEqual([true, true, false]);
    const just = nodesOf(looks.value.get('n1')!.status, new Map(), 60_000, 59_000);
    expect(just.map(({ silent }) => silent)).toEqual([false, false, false]);
    expect(looks.value.get('n2')!.status.node.name).toBe('cellar');
  });

  it('forgets nodes that are no members any more', () => {
    take(event('hello', {}));
    take(event('status', status('n2', 'cellar') as never, 0, 'n2'));
    take(event('status', status('n1', 'attic', { cluster: { leader: 'n1', quorum: true, members: [member('n1', 'attic')] } }) as never));
    expect([...looks.value.keys()]).toEqual(['n1']);
  });

  it('is one node where nothing is told of others', () => {
    expect(nodesOf(status('n1', 'attic'), new Map(), 0).map(({ member: { name, state } }) => [name, state])).toEqual([['attic', 'ready']]);
    expect(nodesOf(null, new Map(), 0)).toEqual([]);
  });

  it('does not count a node that was started anew from before', () => {
    const model = (tokens: number) => [{ name: 'm', memory_bytes: 1, context: 1, slots: 1, running: 0, queued: 0, kv_tokens: 0, kv_cells: 0, resident_tokens: 0, prompt_tokens_computed: 0, prompt_tokens_reused: 0, tokens_generated: tokens }];
    const at = (uptime: number, tokens: number) => take(event('status', { ...status('n1', 'attic', { models: model(tokens) }), node: { ...status('n1', 'attic').node, uptime_seconds: uptime } } as never));
    at(100, 5000);
    at(1, 3);
    expect(looks.value.get('n1')!.rates).toBeNull();
    at(3, 20);
    expect(looks.value.get('n1')!.rates!.generated).toBeGreaterThan(0);
  });

  it('keeps a bounded list of events, the latest first, each once', () => {
    for (let i = 0; i < eventsKept + 20; i++) take(event('ready', { ready: true }, i));
    take(event('ready', { ready: true }, eventsKept));
    take(event('request_finished', { id: 'x' }, 9999));
    expect(events.value.length).toBe(eventsKept);
    expect(Date.parse(events.value[0]!.time)).toBeGreaterThan(Date.parse(events.value[1]!.time));
    expect(requests.list().length).toBe(1);
  });

  it('reaches other nodes by way of the one of the page', () => {
    self.value = 'n1';
    expect([at('n1', '/admin/kv'), at('', '/admin/kv'), at('n2', '/admin/kv')]).toEqual(['/admin/kv', '/admin/kv', '/admin/nodes/n2/admin/kv']);
  });
});

describe('requests', () => {
  const placed = (id: string, seconds = 0) => event('request_placed', { id, model: 'm', prompt_tokens: 100, decode: 'attic', prefill: 'local', reason: 'r', scores: [{ node: 'attic', seconds: 1 }, { node: 'b', why: 'full' }, 5] }, seconds);
  const finished = (id: string, seconds: number, change = {}) => event('request_finished', { id, endpoint: 'chat', model: 'm', outcome: 'stop', status: 200, completion_tokens: 11, ttft_seconds: 2, seconds: 4, queue_seconds: 1.5, prefill_seconds: 0.4, decode_seconds: 2, ...change }, seconds);

  it('are put together in any order, and twice is once', () => {
    const all = new Requests();
    const moved = event('kv_moved', { id: 'a', from: 'cellar', made: true, blocks: 3, wanted: 3, seconds: 1.2, estimate_seconds: 1, outcome: 'complete' });
    for (const e of [finished('a', 4), moved, placed('a', 0.05), moved, event('request_moved', { id: 'a', from: 'x', to: 'y', tokens: 5, reason: 'lost' }), event('ready', { id: 'a' }), event('kv_moved', { blocks: 1 })]) all.take(e);
    const [a, ...rest] = all.list();
    expect(rest).toEqual([]);
    expect(a).toMatchObject({ id: 'a', model: 'm', prompt: 100, source: 'local', moved: [{ from: 'cellar', made: true }], moves: [{ to: 'y' }] });
    expect(a!.scores.map(({ node, why }) => [node, why])).toEqual([['attic', undefined], ['b', 'full']]);
    const parts = partsOf(a!);
    expect(parts.map(({ kind, seconds }) => [kind, Number(seconds.toFixed(3))])).toEqual([['prepare', 0.05], ['queue', 0.3], ['transfer', 1.2], ['prefill', 0.4], ['decode', 2], ['rest', 0.05]]);
    expect(parts.reduce((sum, { seconds }) => sum + seconds, 0)).toBeCloseTo(4);
    expect(speedOf(a!)).toBe(5);
  });

  it('are bounded: the oldest go', () => {
    const all = new Requests();
    for (let i = 0; i < requestsKept + 10; i++) all.take(placed(`r${i}`, i));
    expect(all.list().length).toBe(requestsKept);
    expect(all.list()[0]!.id).toBe(`r${requestsKept + 9}`);
    expect(all.list().at(-1)!.id).toBe('r10');
  });

  it('never have parts longer than they are, whatever the nodes say', () => {
    const all = new Requests();
    all.take(finished('b', 1, { seconds: 1, queue_seconds: 0, prefill_seconds: 0, decode_seconds: 0 }));
    all.take(event('kv_moved', { id: 'b', from: 'x', seconds: 50 }));
    expect(partsOf(all.list()[0]!).reduce((sum, { seconds }) => sum + seconds, 0)).toBeLessThanOrEqual(1);
    all.take(placed('c'));
    expect(partsOf(all.list().find(({ id }) => id === 'c')!)).toEqual([]);
  });

  it('are found', () => {
    const all = new Requests();
    all.take(placed('a'));
    all.take(placed('b'));
    all.take(finished('b', 9, { outcome: 'error' }));
    const names = () => 'garage';
    const find = (words: string, outcome = '') => all.list().filter((view) => matches(view, { words, outcome }, names)).map(({ id }) => id).sort();
    expect(find('')).toEqual(['a', 'b']);
    expect(find('GARAGE attic')).toEqual(['a', 'b']);
    expect(find('nothing')).toEqual([]);
    expect(find('', 'running')).toEqual(['a']);
    expect(find('', 'failed')).toEqual(['b']);
    expect(find('', 'stop')).toEqual([]);
  });

  it('say what other ways would have cost', () => {
    expect([difference(1.5), difference(-0.2), difference(0)]).toEqual(['1.50 s more', '200 ms less', 'the same']);
    expect(wayInWords({ kind: 'remote', from: 'cellar', seconds: 1 }, 'attic')).toBe('computed by cellar, KV pulled meanwhile');
    expect(wayInWords({ kind: 'local', seconds: 1 }, 'attic')).toBe('computed on attic itself');
    expect(wayInWords({ kind: 'fetched', from: 'cellar', seconds: 1 }, 'attic')).toBe('KV fetched from cellar');
  });
});

describe('the diagnosis', () => {
  const here = (change: object = {}) => status('n1', 'attic', { cluster: { leader: 'n1', quorum: true, members: [], ...change } });
  const words = (s: NodeStatus, all: SeenNode[]) => diagnose(s, all).map(({ grade, text }) => `${grade}: ${text}`);

  it('has a good word when there is nothing', () => {
    expect(words(here(), [seen('n1', 'attic')])).toEqual(['good: attic answers, alone. Another machine joins with the line below.']);
    expect(words(here(), [seen('n1', 'attic'), seen('n2', 'cellar')])[0]).toMatch(/^good: All 2 nodes answer/);
    expect(words(here(), [seen('n1', 'attic'), seen('n2', 'cellar'), { member: member('n3', 'garage', 'left'), look: null, silent: false }])[0]).toMatch(/^good: All 2 nodes answer/);
  });

  it('names what is wrong, the worst first', () => {
    const found = words(here({ quorum: false, reason: '1 of 2 voters', problems: ['cellar does not answer over UDP'] }), [
      seen('n1', 'attic'),
      { member: member('n2', 'cellar', 'failed'), look: null, silent: false },
      { member: member('n3', 'garage', 'alive', '2'), look: null, silent: true },
      seen('n4', 'shed', {}, 'draining'),
    ]);
    expect(found.map((text) => text.split(':')[0])).toEqual(['bad', 'bad', 'warn', 'warn', 'warn', 'warn']);
    const all = found.join('\n');
    for (const part of ['cellar does not answer any more', '(1 of 2 voters)', 'garage tells nothing', 'shed finishes', 'over UDP.', '2 versions: 1 on attic, shed; 2 on garage']) expect(all).toContain(part);
  });

  it('does not advise to give nodes up while they elect a leader', () => {
    expect(words(here({ quorum: false, reason: 'they elect one' }), [seen('n1', 'attic'), seen('n2', 'cellar')])).toEqual(['warn: The nodes cannot agree on changes now (they elect one). Answers go on; settings and roles stay as they are.']);
  });

  it('knows a wire that became slow', () => {
    const links = [{ id: 'n2', transport: 'quic', rtt_ms: 0.4, kv: [{ transport: 'tcp', goodput: 50e6, used: true, slow: true }, { transport: 'quic', goodput: 0, problem: 'refused' }] }];
    const all = [seen('n1', 'attic', { cluster: { leader: 'n1', quorum: true, members: [], links } }), seen('n2', 'cellar')];
    expect(words(here(), all)).toEqual(['warn: KV comes from cellar to attic at less than half of the speed that was seen before: look at cable, port and switch.', 'warn: The way over QUIC from cellar to attic does not work now: refused.']);
    expect(linksOf(all)).toEqual([{ from: 'n2', to: 'n1', transport: 'QUIC', rttMs: 0.4, kv: 'TCP', goodput: 50e6, slow: true, problem: '', others: '' }]);
  });

  it('has units', () => {
    expect([gigabits(117e6), gigabits(1.25e9), gigabits(125e6), wire('tcp'), wire('new')]).toEqual(['0.94 Gbit/s', '10 Gbit/s', '1.0 Gbit/s', 'TCP', 'new']);
    expect(memoryOf(status('n1', 'a'))).toBeNull();
    expect(memoryOf(status('n1', 'a', { memory_bytes: 12e9, models: [] }))!.words).toBe('models take 0 B of 12.0 GB');
  });
});

describe('nodes together', () => {
  it('hold prefixes', () => {
    const prefix = (id: string, last: string): KVPrefix => ({ id, first: id, start: 0, tokens: 64, blocks: 1, ram_blocks: 1, ram_bytes: 1, disk_blocks: 0, disk_bytes: 0, uses: 0, last_use: last, tokens_spared: 0, pinned: false, leased: false, branches: 0 });
    const held = (...prefixes: KVPrefix[]) => ({ state: {}, prefixes, total: 2 }) as unknown as KVLook;
    const all = together([['n1', held(prefix('a', '2026-01-01T00:00:00Z'), prefix('b', '0001-01-01T00:00:00Z'))], ['n2', held(prefix('b', '2026-01-02T00:00:00Z'))]]);
    expect(all.map(({ id, holders }) => [id, holders.map(({ node }) => node)])).toEqual([['b', ['n1', 'n2']], ['a', ['n1']]]);
    expect(copiedInWords({ blocks: 12, held: 1, unknown: 0, no_room: 0, damaged: 0 }, 'cellar')).toBe('12 blocks copied to cellar, 1 was there already.');
    expect(copiedInWords({ blocks: 0, held: 0, unknown: 3, no_room: 1, damaged: 0 }, 'cellar')).toBe('0 blocks copied to cellar; 3 blocks are of a model that cellar has not loaded: load it there first; 1 block found no room.');
  });

  it('have models', () => {
    const model = (name: string) => ({ name, loaded: false });
    expect(modelsOnNodes([['n1', [model('b'), model('a')]], ['n2', [model('b')]]]).map(({ name, on }) => [name, on.length])).toEqual([['a', 1], ['b', 2]]);
    expect(fitInWords(undefined, 1, 2)).toBeNull();
    expect(fitInWords(5e9, 6e9, 8e9)).toMatchObject({ fits: 'yes' });
    expect(fitInWords(5e9, 1e9, 8e9)).toMatchObject({ fits: 'later' });
    expect(fitInWords(9e9, 1e9, 8e9)!.words).toBe('needs about 9.0 GB, more than the 8.0 GB that models may take');
  });

  it('have addresses', () => {
    const nodes = [{ name: 'a', addr: 'http://h1:9494/', state: 'ready' }, { name: 'b', addr: '10.0.0.1:9496', state: 'ready' }, { name: 'c', addr: 'http://h3:9494', state: 'failed' }];
    expect(addressesOf('http://h0:9494', nodes).map(({ url }) => url)).toEqual(['http://h0:9494', 'http://h1:9494']);
    expect(addressesOf('http://h1:9494', nodes).length).toBe(1);
  });
});

describe('is it worth it', () => {
  const model = (read: number, step: number) => [{ name: 'm', memory_bytes: 1, context: 1, slots: 1, running: 0, queued: 0, kv_tokens: 0, kv_cells: 0, resident_tokens: 0, prompt_tokens_computed: 0, prompt_tokens_reused: 0, tokens_generated: 0, rates: { prefill_ms: read, decode: step > 0 ? [{ streams: 2, ms: step }] : null } }];
  const links = [{ id: 'n2', transport: 'quic', rtt_ms: 1, kv: [{ transport: 'tcp', goodput: 100e6, used: true }, { transport: 'quic', goodput: 900e6 }] }];
  const all = [seen('n1', 'attic', { models: model(8, 20), cluster: { leader: '', quorum: true, members: [], links } }), seen('n2', 'cellar', { models: model(1, 40) }), seen('n3', 'idle', { models: model(0, 0) })];

  it('compares what was measured', () => {
    const speeds = speedsOf(all).get('m')!;
    expect(speeds.map(({ node, writeRate }) => [node, writeRate])).toEqual([['attic', 100], ['cellar', 50]]);
    expect(togetherInWords(speeds)).toContain('150 tokens/s together, 1.5 times attic alone');
    expect(togetherInWords([])).toContain('not known');
    expect(goodputBetween(all, 'n2', 'n1')).toBe(100e6);
    expect(goodputBetween(all, 'n1', 'n2')).toBe(0);
    const split = splitOf(speeds[1]!, speeds[0]!, 50_000, 100e6)!;
    expect(split).toMatchObject({ aloneMs: 8000, computeMs: 1000, wireMs: 500, splitMs: 1000 });
    expect(splitInWords(split)).toContain('worth it: 7.00 s sooner');
    expect(split.whatIf.map(({ splitMs }) => Math.round(splitMs))).toEqual([1000, 1000, 1000, 1000]);
  });

  it('takes the figures of a self-benchmark where there are some', () => {
    const rated = seen('n1', 'attic', { models: [{ ...model(8, 20)[0]!, rates: { prefill_ms: 2, kv_bytes_per_token: 4096, decode: [{ streams: 1, ms: 10 }, { streams: 4, ms: 20 }, { streams: 8, ms: 80 }] } }] });
    expect(speedsOf([rated]).get('m')).toEqual([{ node: 'attic', id: 'n1', readMs: 2, writeRate: 200, width: 4 }]);
    expect(kvBytesOf([rated], 'm')).toBe(4096);
    expect(kvBytesOf(all, 'm')).toBe(0);
  });

  it('says when the wire is too slow, or nothing is known', () => {
    const speeds = speedsOf(all).get('m')!;
    const slow = splitOf(speeds[1]!, speeds[0]!, 2_000_000, 100e6)!;
    expect(slow.splitMs).toBe(20_000);
    expect(splitInWords(slow)).toMatch(/held back by the wire, not worth it/);
    expect(slow.whatIf.map(({ splitMs }) => Math.round(splitMs))).toEqual([17021, 6809, 1702, 1000]);
    expect(splitInWords(splitOf(speeds[1]!, speeds[0]!, 50_000, 0)!)).toContain('was not measured');
    expect(splitOf(speeds[1]!, speeds[0]!, 0, 1)).toBeNull();
  });
});

describe('the planner', () => {
  it('may be absent', () => {
    for (const value of [undefined, null, 5, 'x', []]) expect(readPlanner(value)).toBeNull();
    expect(readPlanner({})).toEqual({ mode: '', roles: [], plan: [], reasons: [], advice: [], facts: [], forecast: [], others: [], history: [] });
  });

  it('is read as the planner of this version tells it', () => {
    const view = readPlanner({
      mode: 'auto', epoch: 4, plan: { attic: 'decode', cellar: 'prefill' }, reason: 'cellar reads faster', role: 'decode', role_why: 'the plan',
      says: { time: '2026-01-01T00:00:00Z', advice: { garage: 'prefill' }, others: { ttft_ms: 900 } },
      reasons: ['cellar reads faster', 'the wire carries it'], forecast: { ttft_ms: 400, utilisation: 0.25 }, estimator: { requests: 12, p50_ms: 8 },
      history: [{ time: '2026-01-01T00:00:00Z', epoch: 3, roles: {}, reason: 'at first' }, { time: '2026-01-02T00:00:00Z', epoch: 4, roles: { attic: 'decode' }, reason: 'cellar reads faster' }],
    })!;
    expect(view).toMatchObject({ mode: 'auto', roles: [{ node: 'attic', role: 'decode' }, { node: 'cellar', role: 'prefill' }], plan: [], reasons: ['cellar reads faster', 'the wire carries it'], advice: [{ node: 'garage', role: 'prefill' }], forecast: [['ttft', '400 ms'], ['utilisation', '0.250']], others: [['ttft', '900 ms']] });
    expect(view.facts).toEqual([['epoch', '4'], ['role', 'decode'], ['role why', 'the plan'], ['estimator: requests', '12'], ['estimator: p50', '8 ms']]);
    expect(view.history.map(({ text }) => text)).toEqual(['attic decode: cellar reads faster', 'at first']);
  });

  it('is read whatever its fields are called', () => {
    const view = readPlanner({
      mode: 'on',
      plan: { epoch: 3, roles: { n1: 'decode', n2: 'prefill' } },
      reasons: ['cellar reads eight times as fast'],
      forecast: { requests_per_second: 1.25, ttft_ms: 480.123, predictor: 'ewma', deep: { load: 0.5 } },
      history: [{ time: '2026-01-01T00:00:00Z', reason: 'old' }, { time: '2026-01-02T00:00:00Z', epoch: 3 }],
    })!;
    expect(view.roles).toEqual([{ node: 'n1', role: 'decode' }, { node: 'n2', role: 'prefill' }]);
    expect(view.plan).toEqual([['epoch', '3']]);
    expect(view.forecast).toEqual([['requests', '1.25 /s'], ['ttft', '480 ms'], ['predictor', 'ewma'], ['deep: load', '0.500']]);
    expect(view.history).toEqual([{ time: '2026-01-02T00:00:00Z', text: 'epoch 3' }, { time: '2026-01-01T00:00:00Z', text: 'old' }]);
    expect(readPlanner({ plan: [{ name: 'attic', role: 'hybrid' }], reasons: 'one' })).toMatchObject({ roles: [{ node: 'attic', role: 'hybrid' }], reasons: ['one'] });
  });
});

describe('QR codes', () => {
  /** FNV-1a of the modules, row by row. */
  const digest = (text: string, mask: number) => {
    let sum = 0x811c9dc5;
    for (const c of qr(text, mask)!.map((line) => line.map((dark) => (dark ? '1' : '0')).join('')).join('\n')) sum = Math.imul(sum ^ c.charCodeAt(0), 0x01000193) >>> 0;
    return sum;
  };

  // Made by an independent encoder, with the mask given.
  const golden: [text: string, mask: number, digest: number][] = [
    ['HELLO', 0, 0x8687a395],
    ['HELLO', 3, 0xf85dbb01],
    ['HELLO', 6, 0x230cf081],
    ['NODE_SECRET=abcdefghijklmnopqrstuvwxyz node --join 192.168.1.20:9495', 0, 0x7885804d],
    ['NODE_SECRET=abcdefghijklmnopqrstuvwxyz node --join 192.168.1.20:9495', 3, 0x99af6247],
    ['NODE_SECRET=abcdefghijklmnopqrstuvwxyz node --join 192.168.1.20:9495', 6, 0x9088b383],
    ['ü€ xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx', 0, 0xf3df88cf],
    ['ü€ xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx', 3, 0x7a78221b],
    ['ü€ xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx', 6, 0xd705d2cd],
    ['yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy', 0, 0x3abe15cb],
    ['yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy', 3, 0x045a5207],
    ['yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy', 6, 0xe2e9817f],
    ['zzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzz', 0, 0x7b263e91],
    ['zzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzz', 3, 0xd02084dd],
    ['zzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzz', 6, 0x30546b61],
  ];
  it.each(golden)('of %j under mask %i', (text, mask, want) => expect(digest(text, mask)).toBe(want));

  it('are of a size that fits, or none', () => {
    expect(qr('x')!.length).toBe(21);
    expect(qr('x'.repeat(213))!.length).toBe(57);
    expect(qr('x'.repeat(214))).toBeNull();
  });
});
