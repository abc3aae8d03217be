/** Curve is a small line of what came before; the numbers beside it say the same in words. */
export function Curve({ values, kind }: { values: number[]; kind: 'prefill' | 'decode' }) {
  if (values.length < 2) return null;
  const max = Math.max(...values, 1e-9);
  const width = 120;
  const height = 24;
  const points = values.map((value, i) => `${((i * width) / (values.length - 1)).toFixed(1)},${(height - 1 - (value / max) * (height - 2)).toFixed(1)}`).join(' ');
  return (
    <svg class={`curve ${kind}`} viewBox={`0 0 ${width} ${height}`} preserveAspectRatio="none" aria-hidden="true" focusable="false">
      <polyline points={points} />
    </svg>
  );
}
