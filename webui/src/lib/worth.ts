// "Is the second box worth it?", answered from what the nodes measured of
// themselves and of the wires between them.

import type { SeenNode } from './cluster';
import { gigabits } from './diagnosis';
import { milliseconds, rate } from './format';

/** Wires to compare with, in Gbit/s, and the share of it that data gets: Ethernet, IP and TCP headers at 1500 bytes take the rest. */
const wires = [1, 2.5, 10, 25];
const payloadShare = 0.94;

/** Tokens of the prompt that examples are made with. */
export const exampleTokens = 1000;

/** Speed is what one node measured of one model. 0 is not measured. */
export interface Speed {
  node: string; // name
  id: string;
  readMs: number; // of a prompt token
  writeRate: number; // tokens/s of all answers together, at the number of them that was fastest
  width: number; // answers at once
}

/** speedsOf are the measured speeds by model, of models that some node has measured. */
export function speedsOf(nodes: SeenNode[]): Map<string, Speed[]> {
  const out = new Map<string, Speed[]>();
  for (const { member, look } of nodes) {
    for (const model of look?.status.models ?? []) {
      const readMs = model.rates?.prefill_ms ?? 0;
      const paces = (model.rates?.decode ?? []).filter(({ streams, ms }) => streams > 0 && ms > 0);
      if (readMs <= 0 && paces.length === 0) continue;
      const rateOf = ({ streams, ms }: { streams: number; ms: number }) => (1000 * streams) / ms;
      const best = paces.length > 0 ? paces.reduce((a, b) => (rateOf(b) > rateOf(a) ? b : a)) : null;
      const speed = { node: member.name, id: member.id, readMs, writeRate: best ? rateOf(best) : 0, width: best?.streams ?? 1 };
      out.set(model.name, [...(out.get(model.name) ?? []), speed]);
    }
  }
  return out;
}

/** kvBytesOf are the bytes of KV of one token of a model, as some node tells; 0: none does. */
export function kvBytesOf(nodes: SeenNode[], name: string): number {
  return Math.max(0, ...nodes.flatMap(({ look }) => (look?.status.models ?? []).filter((model) => model.name === name).map(({ rates }) => rates?.kv_bytes_per_token ?? 0)));
}

/** goodputBetween is how fast KV comes from one node to another, in bytes/s, as the latter measured it; 0: not measured. */
export function goodputBetween(nodes: SeenNode[], from: string, to: string): number {
  const link = nodes.find(({ member }) => member.id === to)?.look?.status.cluster?.links?.find(({ id }) => id === from);
  return Math.max(0, ...(link?.kv ?? []).filter(({ used }) => used).map(({ goodput }) => goodput));
}

export interface Split {
  reader: string; // computes prompts
  writer: string; // writes answers
  aloneMs: number; // for exampleTokens, on the writer itself
  computeMs: number; // on the reader
  wireMs: number; // to move the KV; 0: the wire was not measured
  splitMs: number; // until the KV is there, when it is pulled while it is computed
  wire: string;
  whatIf: { wire: string; splitMs: number }[];
}

/** splitOf compares a prompt that the writer computes itself with one that the reader computes for it. kvBytes are of one token. null: too little was measured. */
export function splitOf(reader: Speed, writer: Speed, kvBytes: number, goodput: number): Split | null {
  if (reader.readMs <= 0 || writer.readMs <= 0 || kvBytes <= 0) return null;
  const computeMs = reader.readMs * exampleTokens;
  const moved = (bytesPerSecond: number) => ((kvBytes * exampleTokens) / bytesPerSecond) * 1000;
  const wireMs = goodput > 0 ? moved(goodput) : 0;
  return {
    reader: reader.node,
    writer: writer.node,
    aloneMs: writer.readMs * exampleTokens,
    computeMs,
    wireMs,
    splitMs: Math.max(computeMs, wireMs),
    wire: goodput > 0 ? gigabits(goodput) : '',
    whatIf: wires.map((gbit) => ({ wire: `${gbit} Gbit/s`, splitMs: Math.max(computeMs, moved((gbit * 1e9 * payloadShare) / 8)) })),
  };
}

/** togetherInWords says what several nodes are worth for answers that run at the same time. */
export function togetherInWords(speeds: Speed[]): string {
  const writing = speeds.filter(({ writeRate }) => writeRate > 0);
  if (writing.length === 0) return 'No node has written an answer lately, so its speed is not known. Ask something, and look again.';
  const one = ({ node, writeRate, width }: Speed) => `${node} ${rate(writeRate)} tokens/s with ${width < 1.5 ? 'one answer' : `${rate(width)} answers`} at a time`;
  const best = writing.reduce((a, b) => (b.writeRate > a.writeRate ? b : a));
  if (writing.length === 1) return `Only ${one(best)} was measured. Give another node the model, and some requests at the same time, to compare.`;
  const sum = writing.reduce((total, { writeRate }) => total + writeRate, 0);
  return `Measured: ${writing.map(one).join('; ')}. Requests that run at the same time share ${writing.length === 2 ? 'both' : 'them'}: ${rate(sum)} tokens/s together, ${(sum / best.writeRate).toFixed(1)} times ${best.node} alone. One single answer is not faster than on ${best.node}.`;
}

/** splitInWords says whether computing prompts on another node pays. */
export function splitInWords({ reader, writer, aloneMs, computeMs, wireMs, splitMs, wire }: Split): string {
  const each = `${exampleTokens.toLocaleString('en')} tokens that nobody has yet`;
  if (wireMs === 0) return `For ${each}, ${writer} takes ${milliseconds(aloneMs)} and ${reader} ${milliseconds(computeMs)}; the wire from ${reader} to ${writer} was not measured.`;
  const verdict = splitMs < aloneMs * 0.9 ? `worth it: ${milliseconds(aloneMs - splitMs)} sooner` : splitMs > aloneMs ? 'not worth it' : 'hardly worth it';
  const held = wireMs > computeMs ? ', held back by the wire' : '';
  return `For ${each}, ${writer} takes ${milliseconds(aloneMs)} itself. ${reader} computes them in ${milliseconds(computeMs)}, and moving them over ${wire} takes ${milliseconds(wireMs)} beside that: ${milliseconds(splitMs)}${held}, ${verdict}.`;
}
