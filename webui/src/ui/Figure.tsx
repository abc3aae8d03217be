/** Figure is one number of a list of figures; kind colours its edge. */
export function Figure({ name, value, kind = '' }: { name: string; value: string; kind?: 'prefill' | 'decode' | '' }) {
  return (
    <div class={`figure ${kind}`}>
      <dt>{name}</dt>
      <dd>{value}</dd>
    </div>
  );
}
