// Numbers for people. Every function takes the unit in its name.

const whole = new Intl.NumberFormat('en', { maximumFractionDigits: 0 });

export function count(n: number): string {
  return whole.format(n);
}

export function plural(n: number, one: string, many = one + 's'): string {
  return `${count(n)} ${n === 1 ? one : many}`;
}

export function bytes(n: number): string {
  const units = ['B', 'kB', 'MB', 'GB', 'TB'];
  let unit = 0;
  while (n >= 999.5 && unit < units.length - 1) {
    n /= 1000;
    unit++;
  }
  return `${n.toFixed(unit === 0 || n >= 99.5 ? 0 : 1)} ${units[unit]}`;
}

export function milliseconds(ms: number): string {
  if (ms < 999.5) return `${Math.max(0, Math.round(ms))} ms`;
  if (ms < 9950) return `${(ms / 1000).toFixed(2)} s`;
  return seconds(ms / 1000);
}

export function seconds(s: number): string {
  if (s < 59.95) return `${s.toFixed(1)} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${Math.floor(s % 60)} s`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
  return `${Math.floor(s / 86400)} d ${Math.floor((s % 86400) / 3600)} h`;
}

export function rate(perSecond: number): string {
  return perSecond >= 99.5 ? count(perSecond) : perSecond.toFixed(1);
}
