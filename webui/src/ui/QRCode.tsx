import { useMemo } from 'preact/hooks';
import { qr } from '../lib/qr';

const quiet = 4; // modules of light around it, which readers need

/** QRCode draws a text; nothing if it is too long for one. */
export function QRCode({ text, label }: { text: string; label: string }) {
  const square = useMemo(() => qr(text), [text]);
  if (square === null) return null;
  const size = square.length + 2 * quiet;
  const path = square.map((line, row) => line.map((dark, column) => (dark ? `M${column + quiet} ${row + quiet}h1v1h-1z` : '')).join('')).join('');
  return (
    <svg class="qr" viewBox={`0 0 ${size} ${size}`} role="img" aria-label={label} shape-rendering="crispEdges">
      <rect width={size} height={size} fill="#fff" />
      <path d={path} fill="#000" />
    </svg>
  );
}
