/**
 * Compares a kernel with the plain one at start, on the values where arithmetic units differ first.
 *
 * @module
 */
import type { F32Bytes, FoldKernel } from "./kernel.ts";
import { PlainKernel } from "./plain.ts";

/** What the comparison found. */
export interface Exactness {
  /** True when every result that no subnormal took part in has the plain kernel's bits. */
  readonly exact: boolean;
  /** True when subnormal inputs or results were taken for zeros. */
  readonly flushesSubnormals: boolean;
  /** The first difference that is more than a flushed subnormal, in words; empty when exact. */
  readonly difference: string;
}

/** Values compared: odd, so that every kernel's tail is taken as well. */
const COUNT = 4099;
const SOURCES = 4;
/** Exactly representable and not a power of two, so that products round. */
const FACTOR = Math.fround(1 / 3);

const EDGES = [
  0,
  -0,
  1,
  -1,
  1e8,
  -1e8,
  2 ** -149, // the smallest subnormal
  -(2 ** -149),
  2 ** -126 - 2 ** -149, // the largest one
  -(2 ** -126 - 2 ** -149),
  2 ** -126, // the smallest normal value
  -(2 ** -126),
  3 * 2 ** -127,
  3.4028234663852886e38, // the largest value
  -3.4028234663852886e38,
  Infinity,
  -Infinity,
  NaN,
];

/** SOURCES vectors: all pairs of edges first, then values of every exponent. */
function makeSources(): Float32Array<ArrayBuffer>[] {
  const sources = Array.from({ length: SOURCES }, () => new Float32Array(COUNT));
  const bits = new Uint32Array(1);
  const value = new Float32Array(bits.buffer);
  let state = 1;
  for (let i = 0; i < COUNT; i++) {
    sources.forEach((source, k) => {
      const pair = EDGES.length ** 2;
      if (i < pair) {
        // -0.0 changes no sum but one that should not have been -0.0 to begin with.
        source[i] = k === 0
          ? EDGES[i % EDGES.length]!
          : k === 1
          ? EDGES[Math.floor(i / EDGES.length)]!
          : -0;
        return;
      }
      // A linear congruence (constants from Numerical Recipes) is random enough here.
      state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
      bits[0] = state;
      source[i] = Number.isFinite(value[0]!) ? value[0]! : i;
    });
  }
  return sources;
}

const isSubnormal = (x: number) => x !== 0 && Math.abs(x) < 2 ** -126;

/**
 * What one element gives when subnormals are taken for zeros, on the way in, out, or both: the sum, and
 * its product with the factor.
 */
function flushed(
  values: readonly number[],
  onInput: boolean,
  onResult: boolean,
): { sum: number; product: number } {
  const before = (x: number) => onInput && isSubnormal(x) ? 0 : x;
  const after = (x: number) => onResult && isSubnormal(x) ? 0 : x;
  let sum = 0;
  for (const value of values) sum = after(Math.fround(before(sum) + before(value)));
  return { sum, product: after(Math.fround(before(sum) * FACTOR)) };
}

/** The same bits, where any NaN is as good as any other. */
function same(a: number, b: number): boolean {
  return Object.is(a, b);
}

const bytesOf = (values: Float32Array<ArrayBuffer>) => new Uint8Array(values.buffer);

/**
 * Folds {@link SOURCES} vectors in two steps, once scaled and once not, and scales the result in place.
 *
 * @throws what the kernel throws.
 */
export async function checkExactness(kernel: FoldKernel): Promise<Exactness> {
  const sources = makeSources();
  const plain = new PlainKernel();
  const run = async (kernel: FoldKernel) => {
    const out = new Float32Array(COUNT);
    const sum = kernel.begin(bytesOf(out));
    const runs: F32Bytes[] = sources.map(bytesOf);
    await sum.add(runs.slice(0, 1));
    await sum.add(runs.slice(1));
    await sum.finish(FACTOR);
    const unscaled = new Float32Array(COUNT);
    const again = kernel.begin(bytesOf(unscaled));
    await again.add(runs);
    await again.finish();
    const scaled = unscaled.slice();
    await kernel.scale(bytesOf(scaled), FACTOR);
    return [out, unscaled, scaled] as const;
  };
  const [actual, actualUnscaled, actualScaled] = await run(kernel);
  const [expected, expectedUnscaled, expectedScaled] = await run(plain);

  let flushesSubnormals = false;
  for (let i = 0; i < COUNT; i++) {
    const sum = { actual: actualUnscaled[i]!, expected: expectedUnscaled[i]! };
    const products = [
      { actual: actual[i]!, expected: expected[i]! },
      { actual: actualScaled[i]!, expected: expectedScaled[i]! },
    ];
    if ([sum, ...products].every(({ actual, expected }) => same(actual, expected))) continue;
    const values = sources.map((source) => source[i]!);
    const possible = [[false, false], [true, false], [false, true], [true, true]]
      .map(([onInput, onResult]) => flushed(values, onInput!, onResult!));
    // A zero's sign is lost with the subnormal that it stands for.
    const near = (a: number, b: number) => same(a + 0, b + 0);
    const explained = possible.some((unit) => near(unit.sum, sum.actual)) &&
      products.every(({ actual }) => possible.some(({ product }) => near(product, actual)));
    if (explained && touchesSubnormal(values)) {
      flushesSubnormals = true;
      continue;
    }
    return {
      exact: false,
      flushesSubnormals,
      difference: `(${values.join(" + ")}) x ${FACTOR} gave ${actual[i]} (unscaled ${
        actualUnscaled[i]
      }), expected ${expected[i]} (unscaled ${expectedUnscaled[i]})`,
    };
  }
  return { exact: true, flushesSubnormals, difference: "" };
}

/** Whether a subnormal appears among the values, their partial sums, or the product. */
function touchesSubnormal(values: readonly number[]): boolean {
  let sum = 0;
  for (const value of values) {
    if (isSubnormal(value)) return true;
    sum = Math.fround(sum + value);
    if (isSubnormal(sum)) return true;
  }
  return isSubnormal(Math.fround(sum * FACTOR));
}
