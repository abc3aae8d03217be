import { count, milliseconds, plural, rate } from '../lib/format';
import type { LiveAnswer } from './live';
import type { Stats } from './types';

/** LiveStats is the speed of a running answer; pieces stand for tokens until the node has counted them. */
export function LiveStats({ live }: { live: LiveAnswer }) {
  const pieces = live.pieces.value;
  const speed = live.speed();
  return (
    <p class="stats" aria-hidden="true">
      {pieces > 0 && `about ${plural(pieces, 'token')}`}
      {speed > 0 && ` · ${rate(speed)} tokens/s`}
    </p>
  );
}

/** AnswerStats says what an answer cost and why it was computed where it was. */
export function AnswerStats({ stats, model }: { stats: Stats; model: string }) {
  const parts = [firstToken(stats), speed(stats), tokens(stats), model].filter((part) => part !== '');
  return (
    <div class="stats">
      <TimeBar stats={stats} />
      <p>{parts.join(' · ')}</p>
      {stats.reason && <p class="reason">{reason(stats)}</p>}
      {stats.warning && <p class="reason">Note of the node: {stats.warning}</p>}
    </div>
  );
}

/** TimeBar shows how the time was spent: reading the prompt, then writing. */
function TimeBar({ stats: { firstMs, decodeMs } }: { stats: Stats }) {
  if (firstMs === undefined || decodeMs === undefined || firstMs + decodeMs <= 0) return null;
  const share = (100 * firstMs) / (firstMs + decodeMs);
  const words = `${milliseconds(firstMs)} to the first token, ${milliseconds(decodeMs)} writing`;
  return (
    <div class="time-bar" role="img" aria-label={words} title={words}>
      <span class="prefill" style={{ width: `${share}%` }} />
      <span class="decode" style={{ width: `${100 - share}%` }} />
    </div>
  );
}

function firstToken({ firstMs }: Stats): string {
  return firstMs === undefined ? '' : `first token ${milliseconds(firstMs)}`;
}

export function speed({ completionTokens, pieces, decodeMs }: Stats): string {
  const tokens = completionTokens ?? pieces ?? 0;
  if (tokens < 2 || !decodeMs) return '';
  return `${rate(((tokens - 1) * 1000) / decodeMs)} tokens/s`;
}

function tokens({ promptTokens, cachedTokens, completionTokens, pieces }: Stats): string {
  if (completionTokens === undefined || promptTokens === undefined) return pieces ? `about ${plural(pieces, 'token')}` : '';
  const cached = cachedTokens ? ` (${count(cachedTokens)} cached)` : '';
  return `${count(promptTokens)} in${cached}, ${count(completionTokens)} out`;
}

function reason({ node, reason }: Stats): string {
  return node ? `On ${node}: ${reason}` : (reason ?? '');
}
