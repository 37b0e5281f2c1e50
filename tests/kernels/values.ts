/** Values, lengths and comparisons that the kernels' tests share. */
import { fail } from "@std/assert";
import type { F32Bytes } from "../../kernels/kernel.ts";

/** A small generator with a seed (xorshift), so that a failure can be repeated. */
export class Random {
  #state: number;

  constructor(seed: number) {
    this.#state = Math.imul(seed + 1, 0x9e3779b1) | 1;
  }

  /** 32 random bits. */
  bits(): number {
    let x = this.#state;
    x ^= x << 13;
    x ^= x >>> 17;
    x ^= x << 5;
    this.#state = x;
    return x >>> 0;
  }

  /** A whole number from 0 to `end` - 1. */
  below(end: number): number {
    return this.bits() % end;
  }
}

/** Bit patterns where sums go wrong first: zeros, subnormals, the ends of the range, infinities, NaN. */
const EDGES = [
  0x00000000,
  0x80000000,
  0x00000001,
  0x80000001,
  0x007fffff,
  0x00800000,
  0x80800000,
  0x7f7fffff,
  0xff7fffff,
  0x7f800000,
  0xff800000,
  0x7fc00000,
  0x3f800000,
  0xbf800000,
  0x4cbebc20, // 1e8
  0xccbebc20,
];

/** `length` values: half of any bits at all, a quarter edges, a quarter near 1. */
export function awkward(random: Random, length: number): Uint8Array<ArrayBuffer> {
  const bits = new Uint32Array(length);
  for (let i = 0; i < length; i++) {
    const kind = random.bits() & 3;
    if (kind < 2) bits[i] = random.bits();
    else if (kind === 2) bits[i] = EDGES[random.below(EDGES.length)]!;
    else bits[i] = 0x3f000000 | (random.bits() & 0x80ffffff);
  }
  return new Uint8Array(bits.buffer);
}

/** 0 to 67, and around the multiples of 4, 16 and 64 up to `largest`. */
export function lengths(largest: number): number[] {
  const around = [4, 16, 64].flatMap((unit) =>
    [unit * 5, unit * 17, Math.floor(largest / unit) * unit]
      .flatMap((at) => [at - 1, at, at + 1])
  );
  return [...Array(68).keys(), ...around];
}

/**
 * Compares two runs of f32 bit by bit, except that any NaN equals any other one: neither JavaScript
 * nor WASM promises its sign and payload.
 */
export function assertSameBits(actual: F32Bytes, expected: F32Bytes, what: string): void {
  if (actual.length !== expected.length) {
    fail(`${what}: ${actual.length} bytes instead of ${expected.length}`);
  }
  const a = new Uint32Array(actual.slice().buffer);
  const b = new Uint32Array(expected.slice().buffer);
  for (let i = 0; i < a.length; i++) {
    if (a[i] === b[i]) continue;
    if ((a[i]! & 0x7fffffff) > 0x7f800000 && (b[i]! & 0x7fffffff) > 0x7f800000) continue;
    const hex = (bits: number) => `0x${bits.toString(16).padStart(8, "0")}`;
    fail(`${what}: value ${i} of ${a.length} is ${hex(a[i]!)} instead of ${hex(b[i]!)}`);
  }
}
