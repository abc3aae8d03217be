// QR codes (ISO/IEC 18004) of short texts: byte mode, error correction level M,
// versions 1 to 10, so up to 213 bytes.

/** Codewords of each version at level M: [error correction per block, blocks and data codewords of both groups]. */
const versions: [ecc: number, blocks1: number, data1: number, blocks2: number, data2: number][] = [
  [10, 1, 16, 0, 0],
  [16, 1, 28, 0, 0],
  [26, 1, 44, 0, 0],
  [18, 2, 32, 0, 0],
  [24, 2, 43, 0, 0],
  [16, 4, 27, 0, 0],
  [18, 4, 31, 0, 0],
  [22, 2, 38, 2, 39],
  [22, 3, 36, 2, 37],
  [26, 4, 43, 1, 44],
];

/** Centres of the alignment patterns of each version. */
const alignments = [[], [6, 18], [6, 22], [6, 26], [6, 30], [6, 34], [6, 22, 38], [6, 24, 42], [6, 26, 46], [6, 28, 50]];

/** qr is the square of modules of a text, row by row, true is dark; null: the text is too long. mask is chosen by the standard's rules unless it is given. */
export function qr(text: string, mask?: number): boolean[][] | null {
  const bytes = new TextEncoder().encode(text);
  const version = versions.findIndex(([, b1, d1, b2, d2], i) => bytes.length + (i + 1 < 10 ? 2 : 3) <= b1 * d1 + b2 * d2) + 1;
  if (version === 0) return null;
  const words = interleave(dataWords(bytes, version), version);
  const square = patterns(version);
  const free = square.map((line) => line.map((module) => module === undefined));
  place(square, words);
  let best: boolean[][] | null = null;
  let least = Infinity;
  for (const m of mask === undefined ? masks.keys() : [mask]) {
    const candidate = masked(square, free, m);
    const score = penalty(candidate);
    if (score < least) [best, least] = [candidate, score];
  }
  return best;
}

function dataWords(bytes: Uint8Array, version: number): number[] {
  const [, b1, d1, b2, d2] = versions[version - 1]!;
  const capacity = b1 * d1 + b2 * d2;
  const bits: number[] = [];
  const put = (value: number, length: number) => {
    for (let i = length - 1; i >= 0; i--) bits.push((value >> i) & 1);
  };
  put(0b0100, 4);
  put(bytes.length, version < 10 ? 8 : 16);
  for (const byte of bytes) put(byte, 8);
  put(0, Math.min(4, capacity * 8 - bits.length));
  while (bits.length % 8 > 0) bits.push(0);
  const words: number[] = [];
  for (let i = 0; i < bits.length; i += 8) words.push(bits.slice(i, i + 8).reduce((sum, bit) => sum * 2 + bit, 0));
  for (let pad = 0xec; words.length < capacity; pad ^= 0xec ^ 0x11) words.push(pad);
  return words;
}

/** interleave adds the error correction and puts the blocks together. */
function interleave(data: number[], version: number): number[] {
  const [ecc, b1, d1, b2, d2] = versions[version - 1]!;
  const blocks: number[][] = [];
  let from = 0;
  for (let i = 0; i < b1 + b2; i++) {
    const length = i < b1 ? d1 : d2;
    blocks.push(data.slice(from, from + length));
    from += length;
  }
  const checks = blocks.map((block) => remainder(block, ecc));
  const out: number[] = [];
  for (let i = 0; i < Math.max(d1, d2); i++) for (const block of blocks) if (i < block.length) out.push(block[i]!);
  for (let i = 0; i < ecc; i++) for (const check of checks) out.push(check[i]!);
  return out;
}

// The field of 256 elements with x^8 + x^4 + x^3 + x^2 + 1.
const exp: number[] = [];
const log: number[] = [];
for (let i = 0, x = 1; i < 255; i++) {
  exp[i] = x;
  log[x] = i;
  x = (x << 1) ^ (x & 0x80 ? 0x11d : 0);
}

export function times(a: number, b: number): number {
  return a === 0 || b === 0 ? 0 : exp[(log[a]! + log[b]!) % 255]!;
}

/** remainder is the Reed-Solomon check of a block. */
function remainder(block: number[], length: number): number[] {
  let generator = [1];
  for (let i = 0; i < length; i++) {
    const next = [...generator, 0];
    for (let k = 0; k < generator.length; k++) next[k + 1]! ^= times(generator[k]!, exp[i]!);
    generator = next;
  }
  const out = new Array<number>(length).fill(0);
  for (const word of block) {
    const factor = word ^ out[0]!;
    out.shift();
    out.push(0);
    for (let i = 0; i < length; i++) out[i]! ^= times(generator[i + 1]!, factor);
  }
  return out;
}

/** A module: dark or not, or undefined where data goes. */
type Square = (boolean | undefined)[][];

/** patterns is a square with all that does not depend on the data; format bits are kept free as light. */
function patterns(version: number): Square {
  const size = 17 + 4 * version;
  const square: Square = Array.from({ length: size }, () => new Array<boolean | undefined>(size).fill(undefined));
  const set = (row: number, column: number, dark: boolean) => {
    if (row >= 0 && column >= 0 && row < size && column < size) square[row]![column] = dark;
  };
  for (const [top, left] of [[0, 0], [0, size - 7], [size - 7, 0]] as const) {
    for (let r = -1; r <= 7; r++) {
      for (let c = -1; c <= 7; c++) {
        const ring = Math.max(Math.abs(r - 3), Math.abs(c - 3));
        set(top + r, left + c, ring <= 1 || ring === 3);
      }
    }
  }
  const centres = alignments[version - 1]!;
  for (const row of centres) {
    for (const column of centres) {
      if ((row === 6 && column === 6) || (row === 6 && column === size - 7) || (row === size - 7 && column === 6)) continue;
      for (let r = -2; r <= 2; r++) for (let c = -2; c <= 2; c++) set(row + r, column + c, Math.max(Math.abs(r), Math.abs(c)) !== 1);
    }
  }
  for (let i = 8; i < size - 8; i++) {
    set(6, i, i % 2 === 0);
    set(i, 6, i % 2 === 0);
  }
  formats(square, 0, set);
  if (version >= 7) {
    const bits = withCheck(version, 12, 0x1f25);
    for (let i = 0; i < 18; i++) {
      const dark = ((bits >> i) & 1) === 1;
      set(Math.floor(i / 3), size - 11 + (i % 3), dark);
      set(size - 11 + (i % 3), Math.floor(i / 3), dark);
    }
  }
  return square;
}

/** formats writes both copies of the format bits, and the module that is always dark. */
function formats(square: Square, bits: number, set: (row: number, column: number, dark: boolean) => void): void {
  const size = square.length;
  const bit = (i: number) => ((bits >> i) & 1) === 1;
  for (let i = 0; i <= 5; i++) set(i, 8, bit(i));
  set(7, 8, bit(6));
  set(8, 8, bit(7));
  set(8, 7, bit(8));
  for (let i = 9; i < 15; i++) set(8, 14 - i, bit(i));
  for (let i = 0; i < 8; i++) set(8, size - 1 - i, bit(i));
  for (let i = 8; i < 15; i++) set(size - 15 + i, 8, bit(i));
  set(size - 8, 8, true);
}

/** withCheck appends the bits of a BCH code of a number. */
function withCheck(value: number, length: number, generator: number): number {
  let rest = value;
  for (let i = 0; i < length; i++) rest = (rest << 1) ^ ((rest >> (length - 1)) * generator);
  return (value << length) | rest;
}

/** place fills the free modules with the bits of the words, in columns of two from the right, up and down in turn. */
function place(square: Square, words: number[]): void {
  const size = square.length;
  let bit = 0;
  let up = true;
  for (let right = size - 1; right > 0; right -= 2, up = !up) {
    if (right === 6) right--; // the column of the timing pattern is left out
    for (let step = 0; step < size; step++) {
      const row = square[up ? size - 1 - step : step]!;
      for (const column of [right, right - 1]) {
        if (row[column] !== undefined) continue;
        const word = words[bit >> 3] ?? 0; // what is left over is light
        row[column] = ((word >> (7 - (bit & 7))) & 1) === 1;
        bit++;
      }
    }
  }
}

const masks: ((row: number, column: number) => boolean)[] = [
  (r, c) => (r + c) % 2 === 0,
  (r) => r % 2 === 0,
  (_, c) => c % 3 === 0,
  (r, c) => (r + c) % 3 === 0,
  (r, c) => (Math.floor(r / 2) + Math.floor(c / 3)) % 2 === 0,
  (r, c) => ((r * c) % 2) + ((r * c) % 3) === 0,
  (r, c) => (((r * c) % 2) + ((r * c) % 3)) % 2 === 0,
  (r, c) => (((r + c) % 2) + ((r * c) % 3)) % 2 === 0,
];

/** masked is the finished square under one mask: data turned over where that says so, and the format bits. */
function masked(filled: Square, free: boolean[][], mask: number): boolean[][] {
  const out = filled.map((line, r) => line.map((dark, c) => (dark === true) !== (free[r]![c]! && masks[mask]!(r, c))));
  const levelM = 0;
  formats(out, withCheck((levelM << 3) | mask, 10, 0x537) ^ 0x5412, (row, column, dark) => (out[row]![column] = dark));
  return out;
}

/** penalty says how badly a square is read: long runs, blocks, what looks like a finder, too much of one colour. */
function penalty(square: boolean[][]): number {
  const size = square.length;
  const turned = square.map((_, c) => square.map((line) => line[c]!));
  let sum = 0;
  for (const lines of [square, turned]) {
    for (const line of lines) {
      for (let i = 0, run = 0; i < size; i++) {
        run = i > 0 && line[i] === line[i - 1] ? run + 1 : 1;
        if (run === 5) sum += 3;
        else if (run > 5) sum++;
      }
      const bits = line.map((dark) => (dark ? '1' : '0')).join('');
      for (let i = 0; i + 11 <= size; i++) if (['10111010000', '00001011101'].includes(bits.slice(i, i + 11))) sum += 40;
    }
  }
  for (let r = 0; r + 1 < size; r++) {
    for (let c = 0; c + 1 < size; c++) {
      const dark = square[r]![c];
      if (dark === square[r]![c + 1] && dark === square[r + 1]![c] && dark === square[r + 1]![c + 1]) sum += 3;
    }
  }
  const share = square.flat().filter(Boolean).length / (size * size);
  return sum + 10 * Math.floor(Math.abs(share - 0.5) / 0.05);
}
