// What is right and wrong with the cluster, in sentences.

import type { SeenNode } from './cluster';
import { bytes, plural } from './format';
import type { Link, NodeStatus } from './status';

export interface Finding {
  grade: 'good' | 'warn' | 'bad';
  text: string;
}

/** diagnose says what a person should know, the worst first. One good sentence stands for there being nothing. */
export function diagnose(status: NodeStatus, nodes: SeenNode[]): Finding[] {
  const { node, cluster } = status;
  const out: Finding[] = [];
  const bad = (text: string) => out.push({ grade: 'bad', text });
  const warn = (text: string) => out.push({ grade: 'warn', text });
  if (!node.ready) bad(`${node.name}, which serves this page, cannot answer itself: ${node.reason ?? 'it does not say why'}.`);
  for (const { member, look, silent } of nodes) {
    const { name, state } = member;
    if (state === 'failed') bad(`${name} does not answer any more. Requests go to the others; what it computed goes on there. Start it again, or look at its power and cable.`);
    else if (state === 'draining') warn(`${name} finishes what it has and gets nothing new.`);
    else if (silent) warn(look === null ? `${name} tells nothing of itself yet: it may run an older version.` : `${name} has told nothing for a while: it or the network to it is slow.`);
    if (member.id !== node.id && look !== null && !look.status.node.ready && state !== 'draining') warn(`${name} cannot answer yet: ${look.status.node.reason ?? 'it does not say why'}.`);
  }
  if (cluster && !cluster.quorum) {
    const missing = nodes.some(({ member, silent }) => member.state === 'failed' || silent);
    const why = `The nodes cannot agree on changes now${cluster.reason ? ` (${cluster.reason})` : ''}. Answers go on; settings and roles stay as they are.`;
    // Without a node that is missing they elect a leader, within a second or two.
    if (missing) bad(`${why} If the missing nodes will not come back, \`node cluster recover\` lets this one go on alone.`);
    else warn(why);
  }
  for (const problem of cluster?.problems ?? []) warn(problem.endsWith('.') ? problem : `${problem}.`);
  const versions = new Map<string, string[]>();
  for (const { member } of nodes) if (member.state !== 'failed' && member.state !== 'left') versions.set(member.version, [...(versions.get(member.version) ?? []), member.name]);
  if (versions.size > 1) warn(`The nodes run ${versions.size} versions: ${[...versions].map(([version, names]) => `${version} on ${names.join(', ')}`).join('; ')}. They work together; bring them to one version when you can.`);
  for (const { member, look } of nodes) {
    for (const link of look?.status.cluster?.links ?? []) {
      const from = nodes.find((other) => other.member.id === link.id);
      if (from === undefined || from.member.state === 'failed' || from.member.state === 'left') continue;
      if (link.kv?.some(({ used, slow }) => used && slow)) warn(`KV comes from ${from.member.name} to ${member.name} at less than half of the speed that was seen before: look at cable, port and switch.`);
      const failed = link.kv?.find(({ problem }) => problem);
      if (failed) warn(`The way over ${failed.transport.toUpperCase()} from ${from.member.name} to ${member.name} does not work now: ${failed.problem}.`);
    }
  }
  if (out.length > 0) return out.sort((a, b) => order[a.grade] - order[b.grade]);
  const there = nodes.filter(({ member }) => member.state !== 'left');
  return [{ grade: 'good', text: there.length < 2 ? `${node.name} answers, alone. Another machine joins with the line below.` : `All ${plural(there.length, 'node')} answer, and the ways between them are as fast as they were.` }];
}

const order = { bad: 0, warn: 1, good: 2 };

/** gigabits is a rate in Gbit/s, for people. */
export function gigabits(bytesPerSecond: number): string {
  const rate = (bytesPerSecond * 8) / 1e9;
  return `${rate >= 9.95 ? rate.toFixed(0) : rate.toFixed(rate >= 0.995 ? 1 : 2)} Gbit/s`;
}

export interface LinkRow {
  from: string; // id of the node that gives
  to: string;
  transport: string; // of requests and answers
  rttMs: number;
  kv: string; // transport of KV; '' unknown
  goodput: number; // bytes/s on it; 0: not measured
  slow: boolean;
  problem: string;
  others: string; // further ways that were measured
}

/** linksOf is every way between two nodes, as its receiving end measured it. */
export function linksOf(nodes: SeenNode[]): LinkRow[] {
  const out: LinkRow[] = [];
  for (const { member, look } of nodes) {
    for (const link of look?.status.cluster?.links ?? []) {
      if (!nodes.some((other) => other.member.id === link.id && other.member.state !== 'left')) continue;
      out.push(row(link, member.id));
    }
  }
  return out;
}

function row(link: Link, to: string): LinkRow {
  const used = link.kv?.find((way) => way.used && way.goodput > 0) ?? link.kv?.find((way) => way.goodput > 0);
  const others = (link.kv ?? []).filter((way) => way !== used && way.goodput > 0).map((way) => `${wire(way.transport)} ${gigabits(way.goodput)}`);
  return { from: link.id, to, transport: wire(link.transport), rttMs: link.rtt_ms, kv: used ? wire(used.transport) : '', goodput: used?.goodput ?? 0, slow: used?.slow === true, problem: link.problem ?? '', others: others.join(', ') };
}

/** wire is how people write a transport. */
export function wire(transport: string): string {
  const known: Record<string, string> = { quic: 'QUIC', tcp: 'TCP', rdma: 'RDMA', shm: 'shared memory', loop: 'itself' };
  return known[transport] ?? transport;
}

/** hardwareOf is what a node computes on. */
export function hardwareOf(status: NodeStatus): string {
  const devices = (status.devices ?? []).map(({ kind, name, description }) => `${kind && kind !== 'cpu' ? 'GPU ' : ''}${description || name || ''}`.trim()).filter(Boolean);
  return devices.join(', ');
}

/** memoryOf is how much of what models may take is taken; null: it is not known. */
export function memoryOf(status: NodeStatus): { used: number; max: number; words: string } | null {
  const max = status.memory_bytes ?? 0;
  if (max <= 0) return null;
  const used = (status.models ?? []).reduce((sum, model) => sum + model.memory_bytes, 0);
  return { used, max, words: `models take ${bytes(used)} of ${bytes(max)}` };
}
