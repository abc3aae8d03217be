// What the planner of the cluster tells in /admin/status. Its fields may grow, so
// each is read by its kind: text, numbers and lists are shown, whatever their names.

export interface PlannerView {
  mode: string;
  roles: { node: string; role: string }[];
  plan: [name: string, value: string][]; // what else the plan says
  reasons: string[];
  advice: { node: string; role: string }[]; // that nobody takes by itself
  facts: [name: string, value: string][]; // what else it tells of itself
  forecast: [name: string, value: string][];
  others: [name: string, value: string][]; // the forecast of the best other plan
  history: { time: string; text: string }[]; // the latest first
}

type Data = Record<string, unknown>;
const isData = (value: unknown): value is Data => typeof value === 'object' && value !== null && !Array.isArray(value);

/** readPlanner reads the field; null: there is none. */
export function readPlanner(value: unknown): PlannerView | null {
  if (!isData(value)) return null;
  const plan = value.plan;
  const says = isData(value.says) ? value.says : {};
  const roles = rolesOf(isData(plan) && plan.roles !== undefined ? plan.roles : plan);
  return {
    mode: typeof value.mode === 'string' ? value.mode : '',
    roles,
    plan: isData(plan) ? figures(plan, roles.length > 0 && plan.roles === undefined ? Object.keys(plan) : ['roles']) : typeof plan === 'string' ? [['plan', plan]] : [],
    reasons: [...new Set([...texts(value.reasons), ...texts(value.reason)])],
    advice: rolesOf(says.advice),
    facts: figures(value, ['mode', 'plan', 'reasons', 'reason', 'forecast', 'history', 'says']),
    forecast: isData(value.forecast) ? figures(value.forecast, []) : [],
    others: isData(says.others) ? figures(says.others, []) : [],
    history: history(value.history),
  };
}

const known = ['hybrid', 'prefill', 'decode'];

/** rolesOf reads {node: role} or [{node, role}]. */
function rolesOf(value: unknown): { node: string; role: string }[] {
  if (Array.isArray(value)) {
    return value.filter(isData).flatMap((entry) => {
      const node = entry.name ?? entry.node ?? entry.id;
      return typeof node === 'string' && typeof entry.role === 'string' ? [{ node, role: entry.role }] : [];
    });
  }
  if (!isData(value)) return [];
  const entries = Object.entries(value);
  if (!entries.every(([, role]) => typeof role === 'string' && known.includes(role))) return [];
  return entries.map(([node, role]) => ({ node, role: role as string }));
}

function texts(value: unknown): string[] {
  const list = Array.isArray(value) ? value : value === undefined || value === null ? [] : [value];
  return list.flatMap((entry) => (typeof entry === 'string' && entry !== '' ? [entry] : isData(entry) && typeof (entry.text ?? entry.reason) === 'string' ? [String(entry.text ?? entry.reason)] : []));
}

/** figures are the names and values of an object, in words; what is nested is named by both names. */
function figures(data: Data, without: string[]): [string, string][] {
  return Object.entries(data).flatMap(([name, value]): [string, string][] => {
    const label = inWords(name);
    if (without.includes(name) || value === null) return [];
    if (isData(value)) return figures(value, []).map(([inner, text]) => [`${label}: ${inner}`, text]);
    if (Array.isArray(value)) return value.length > 0 && value.every((entry) => typeof entry !== 'object') ? [[label, value.join(', ')]] : [];
    if (typeof value === 'number') return [[label, figure(name, value)]];
    if (typeof value === 'boolean') return [[label, value ? 'yes' : 'no']];
    return value === '' ? [] : [[label, String(value)]];
  });
}

const units: [suffix: string, unit: string][] = [
  ['_ms', ' ms'],
  ['_seconds', ' s'],
  ['_per_second', ' /s'],
  ['_bytes', ' bytes'],
];

function inWords(name: string): string {
  const unit = units.find(([suffix]) => name.endsWith(suffix));
  return (unit ? name.slice(0, -unit[0].length) : name).replaceAll('_', ' ');
}

function figure(name: string, value: number): string {
  const text = Number.isInteger(value) ? value.toLocaleString('en') : Math.abs(value) >= 100 ? Math.round(value).toLocaleString('en') : value.toPrecision(3);
  return text + (units.find(([suffix]) => name.endsWith(suffix))?.[1] ?? '');
}

/** historyMost is how much of the history is shown. */
const historyMost = 50;

function history(value: unknown): { time: string; text: string }[] {
  if (!Array.isArray(value)) return [];
  const list = value.filter(isData).map((entry) => {
    const time = typeof (entry.time ?? entry.at) === 'string' ? String(entry.time ?? entry.at) : '';
    const words = texts(entry.text ?? entry.reasons ?? entry.reason ?? entry.what);
    const roles = rolesOf(entry.roles).map(({ node, role }) => `${node} ${role}`);
    const rest = figures(entry, ['time', 'at', 'text', 'reasons', 'reason', 'what', 'roles']).map(([name, text]) => `${name} ${text}`);
    return { time, text: [roles.join(', '), words.length > 0 ? words.join(' ') : rest.join(', ')].filter(Boolean).join(': ') };
  });
  const latestFirst = list.length > 1 && Date.parse(list[0]!.time) < Date.parse(list.at(-1)!.time) ? list.reverse() : list;
  return latestFirst.slice(0, historyMost);
}
