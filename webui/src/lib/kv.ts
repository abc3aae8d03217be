// What the nodes keep of computed prompts, as /admin/kv of each tells it.

import { call, getJSON } from './api';
import { at } from './nodes';
import { bytes, count, milliseconds, plural, seconds } from './format';

export interface KVTier {
  blocks: number;
  bytes: number;
  budget: number; // 0: there is no such tier
}

export interface KVState {
  enabled: boolean;
  reason?: string;
  ram: KVTier;
  disk: KVTier;
  queue: { blocks: number; bytes: number };
  disk_full?: boolean;
  disk_failing?: boolean;
  pins: number;
  tokens_spared: number;
  seconds_spared: number; // 0: not measured
  checks?: { done: number; different: number };
  models: KVModel[];
}

export interface KVModel {
  name: string;
  loaded: boolean;
  kept: boolean;
  reason?: string;
  block_tokens?: number;
  block_bytes?: number;
  tokens_spared: number;
  seconds_per_token: number; // 0: not measured
  seconds_spared: number;
}

export interface KVPrefix {
  id: string; // of its last block: what to pin
  first: string; // of its first block: what to evict
  start: number; // tokens before it
  tokens: number;
  blocks: number;
  ram_blocks: number;
  ram_bytes: number;
  disk_blocks: number;
  disk_bytes: number;
  uses: number;
  last_use: string; // year 1: not since the start
  tokens_spared: number;
  pinned: boolean;
  leased: boolean;
  branches: number;
  model?: string;
  key?: string;
  words?: string;
}

export interface KVLook {
  state: KVState;
  prefixes: KVPrefix[];
  total: number;
}

/** Most prefixes that the page lists. */
const listed = 100;

/** readKV asks one node; '' is the one that serves the page. */
export async function readKV(node: string, signal?: AbortSignal): Promise<KVLook> {
  const options = { background: true, signal };
  const state = await getJSON<KVState>(at(node, '/admin/kv'), options);
  if (!state.enabled) return { state, prefixes: [], total: 0 };
  const list = await getJSON<{ prefixes: KVPrefix[]; total: number }>(at(node, `/admin/kv/prefixes?limit=${listed}`), options);
  return { state, ...list };
}

/** HeldPrefix is a prefix with the nodes that hold it. */
export interface HeldPrefix {
  id: string;
  holders: { node: string; prefix: KVPrefix }[]; // at least one
}

/** together is one list out of those of all nodes: the same last block is the same prefix. Those used last come first. */
export function together(looks: [node: string, look: KVLook][]): HeldPrefix[] {
  const byID = new Map<string, HeldPrefix>();
  for (const [node, { prefixes }] of looks) {
    for (const prefix of prefixes) {
      const held = byID.get(prefix.id) ?? { id: prefix.id, holders: [] };
      held.holders.push({ node, prefix });
      byID.set(prefix.id, held);
    }
  }
  const last = ({ holders }: HeldPrefix) => Math.max(...holders.map(({ prefix }) => Date.parse(prefix.last_use) || 0));
  // Nodes list by last use; the order of a node is kept where times are equal.
  return [...byID.values()].sort((a, b) => last(b) - last(a));
}

/** bestOf is the holder that tells most of a prefix. */
export function bestOf({ holders }: HeldPrefix): KVPrefix {
  return (holders.find(({ prefix }) => prefix.words) ?? holders[0]!).prefix;
}

export async function setPinned(node: string, id: string, pinned: boolean): Promise<void> {
  await call(at(node, pinned ? '/admin/kv/pin' : '/admin/kv/unpin'), { json: { id } });
}

export interface Copied {
  blocks: number; // that are held there now
  held: number; // that were held there already
  unknown: number; // of a shape that is not known there
  no_room: number;
  damaged: number;
}

/** copiedInWords says what came of a copy. */
export function copiedInWords({ blocks, held, unknown, no_room, damaged }: Copied, to: string): string {
  const left = [
    unknown > 0 && `${plural(unknown, 'block')} ${unknown === 1 ? 'is' : 'are'} of a model that ${to} has not loaded: load it there first`,
    no_room > 0 && `${plural(no_room, 'block')} found no room`,
    damaged > 0 && `${plural(damaged, 'block')} did not verify`,
  ].filter(Boolean);
  return [`${plural(blocks, 'block')} copied to ${to}${held > 0 ? `, ${count(held)} ${held === 1 ? 'was' : 'were'} there already` : ''}`, ...left].join('; ') + '.';
}

/** copyTo lets a node take over a prefix of another one. */
export function copyTo(node: string, from: string, id: string): Promise<Copied> {
  return getJSON<Copied>(at(node, '/admin/kv/fetch'), { json: { from, id } });
}

export interface Evicted {
  ram_blocks: number;
  disk_blocks: number;
  kept: number; // blocks that stay: pinned, in use, or before such
}

export function evict(node: string, first: string): Promise<Evicted> {
  return getJSON<Evicted>(at(node, '/admin/kv/evict'), { json: { id: first } });
}

/** evictedInWords says what came of an eviction. */
export function evictedInWords({ ram_blocks, disk_blocks, kept }: Evicted): string {
  const gone = Math.max(ram_blocks, disk_blocks);
  if (kept === 0) return `Evicted ${plural(gone, 'block')}.`;
  return `Evicted ${plural(gone, 'block')}; ${count(kept)} ${kept === 1 ? 'stays, because it is' : 'stay, because they are'} pinned or in use, or lead to such blocks.`;
}

/** nameOf is what a person may know a prefix by. */
export function nameOf({ words, start, tokens }: KVPrefix): string {
  if (words) return `${start > 0 ? '… ' : ''}${words}…`;
  return start === 0 ? `The first ${plural(tokens, 'token')}` : `${plural(tokens, 'token')} after ${count(start)}`;
}

/** placesOf says which tiers hold a prefix, and how much of it. */
export function placesOf(prefix: KVPrefix): string[] {
  const place = (blocks: number, held: number, where: string) => {
    if (blocks === 0) return '';
    return `${bytes(held)} ${where}${blocks < prefix.blocks ? ` (${count(blocks)} of ${plural(prefix.blocks, 'block')})` : ''}`;
  };
  return [place(prefix.ram_blocks, prefix.ram_bytes, 'in memory'), place(prefix.disk_blocks, prefix.disk_bytes, 'on disk')].filter((text) => text !== '');
}

/** usesOf says how often a prefix was used, when last, and what that spared. */
export function usesOf(prefix: KVPrefix, now: number): string[] {
  const last = Date.parse(prefix.last_use);
  return [
    prefix.uses === 0 ? 'not used yet' : `used ${plural(prefix.uses, 'time')}`,
    last > 0 ? `last ${seconds(Math.max(0, (now - last) / 1000))} ago` : '',
    prefix.tokens_spared > 0 ? `spared ${plural(prefix.tokens_spared, 'token')}` : '',
    prefix.leased ? 'in use now' : '',
  ].filter((text) => text !== '');
}

/** modelInWords says whether the prompts of a model are kept, and what that spared. */
export function modelInWords(model: KVModel): string {
  if (!model.kept) return `Nothing is kept: ${model.reason ?? 'no reason is known'}.`;
  return [
    model.block_tokens ? `Kept in blocks of ${plural(model.block_tokens, 'token')}` : model.loaded ? 'Kept' : 'Not in memory now',
    `spared ${plural(model.tokens_spared, 'token')}`,
    model.seconds_spared > 0 ? `about ${seconds(model.seconds_spared)}` : '',
    model.seconds_per_token > 0 ? `computing takes ${milliseconds(model.seconds_per_token * 1000)} a token` : '',
  ]
    .filter((text) => text !== '')
    .join(' · ');
}
