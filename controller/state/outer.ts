/**
 * Outer optimizers: what the root makes of the previous consensus and a round's average.
 *
 * With x the previous consensus, a the average of the ranks and every operation on f64 values that are
 * rounded to f32 where they are stored, so that the same rounds give the same bits on every machine:
 *
 *     average    x' = a
 *     nesterov   g = x - a;  b' = momentum b + g;  x' = x - rate (g + momentum b')
 *     fedadam    d = a - x;  m' = beta1 m + (1 - beta1) d;  v' = beta2 v + (1 - beta2) d^2
 *                x' = x + rate m' / (sqrt(v') + tau)
 *
 * nesterov: the outer step of DiLoCo (Douillard et al. 2023, arXiv 2311.08105, algorithm 1), the momentum
 * as in Sutskever et al. 2013 in the form that PyTorch's SGD documents; b starts at 0. fedadam: Reddi et
 * al. 2021, Adaptive Federated Optimization, arXiv 2003.00295, algorithm 2, without bias correction; m
 * starts at 0 and v at tau^2.
 *
 * @module
 */
import type { F32Bytes } from "../../kernels/kernel.ts";
import { invariant } from "../../wire/errors.ts";

/** The optimizers by name. */
export const OUTER_OPTIMIZERS = ["average", "nesterov", "fedadam"] as const;

/** Which optimizer, and its rates. */
export type OuterOptions =
  | { readonly name: "average" }
  | {
    readonly name: "nesterov";
    /** The step size. DiLoCo: 0.7. */
    readonly rate: number;
    /** What is kept of the last step, in [0, 1). DiLoCo: 0.9. */
    readonly momentum: number;
  }
  | {
    readonly name: "fedadam";
    /** The step size. */
    readonly rate: number;
    /** Decay of the mean of the steps, in [0, 1). */
    readonly beta1: number;
    /** Decay of the mean of their squares, in [0, 1). */
    readonly beta2: number;
    /** How adaptive it is: the smaller, the more; above 0. */
    readonly tau: number;
  };

/** The names of an optimizer's state vectors, each as long as the tensors together. */
export function outerVectors({ name }: OuterOptions): readonly string[] {
  return name === "average" ? [] : name === "nesterov" ? ["momentum"] : ["m", "v"];
}

/** Values handled at a time: the blocks stay in the caches. */
const BLOCK = 4096;

/** An optimizer with its state: vectors of f32, one value for each value of the consensus. */
export class OuterOptimizer {
  /** Which one it is. */
  readonly options: OuterOptions;
  /** Its state by the names of {@link outerVectors}, in their order. */
  readonly state: ReadonlyMap<string, Float32Array>;
  readonly #vectors: Float32Array[];
  readonly #next = new Float32Array(BLOCK);
  readonly #nextBytes = new Uint8Array(this.#next.buffer);
  readonly #before = new Float32Array(BLOCK);
  readonly #beforeBytes = new Uint8Array(this.#before.buffer);

  /** @param elements How many values the consensus has. */
  constructor(options: OuterOptions, elements: number) {
    this.options = options;
    this.state = new Map(
      outerVectors(options).map((name) => [name, new Float32Array(elements)]),
    );
    this.#vectors = [...this.state.values()];
    if (options.name === "fedadam") this.state.get("v")!.fill(options.tau ** 2);
  }

  /**
   * Makes one step over a run of values.
   *
   * @param values The average; what comes after the step is written over it.
   * @param previous The consensus before it, of the same length; any alignment.
   * @param from Where the run starts among all values.
   */
  step(values: F32Bytes, previous: F32Bytes, from: number): void {
    invariant(values.length === previous.length, "an outer step over runs of two lengths");
    for (let done = 0; done < values.length; done += 4 * BLOCK) {
      const end = Math.min(done + 4 * BLOCK, values.length);
      const n = (end - done) / 4;
      // Values lie at any alignment in a frame.
      this.#nextBytes.set(values.subarray(done, end));
      this.#beforeBytes.set(previous.subarray(done, end));
      this.#block(n, from + done / 4);
      values.set(this.#nextBytes.subarray(0, 4 * n), done);
    }
  }

  #block(n: number, from: number): void {
    const { options } = this;
    const next = this.#next;
    const before = this.#before;
    const [first, second] = this.#vectors.map((vector) => vector.subarray(from, from + n));
    if (options.name === "nesterov") nesterov(n, next, before, first!, options);
    else if (options.name === "fedadam") fedadam(n, next, before, first!, second!, options);
  }
}

function nesterov(
  n: number,
  next: Float32Array,
  before: Float32Array,
  b: Float32Array,
  { rate, momentum }: { rate: number; momentum: number },
): void {
  for (let i = 0; i < n; i++) {
    const x = before[i]!;
    const g = x - next[i]!;
    const kept = Math.fround(momentum * b[i]! + g);
    b[i] = kept;
    next[i] = x - rate * (g + momentum * kept);
  }
}

function fedadam(
  n: number,
  next: Float32Array,
  before: Float32Array,
  m: Float32Array,
  v: Float32Array,
  { rate, beta1, beta2, tau }: { rate: number; beta1: number; beta2: number; tau: number },
): void {
  for (let i = 0; i < n; i++) {
    const x = before[i]!;
    const d = next[i]! - x;
    const mean = Math.fround(beta1 * m[i]! + (1 - beta1) * d);
    const square = Math.fround(beta2 * v[i]! + (1 - beta2) * (d * d));
    m[i] = mean;
    v[i] = square;
    // V8 computes square roots with the CPU's instruction, which rounds correctly.
    next[i] = x + rate * mean / (Math.sqrt(square) + tau);
  }
}
