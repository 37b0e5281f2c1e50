/**
 * Measures the fold kernels next to memcpy, taking turns so that all see the same machine.
 *
 * @module
 */

import { Arena } from "../kernels/arena.ts";
import type { F32Bytes, FoldKernel, KernelName } from "../kernels/kernel.ts";
import { OrtKernel, type OrtProvider } from "../kernels/ort.ts";
import { PlainKernel } from "../kernels/plain.ts";
import { SimdKernel } from "../kernels/simd.ts";

/** Inputs of a measured fold. */
export const INPUTS = 4;
/** Bytes that a fold reads and writes, over those that it reads. */
const FOLD_TRAFFIC = (INPUTS + 1) / INPUTS;
/** The same for a copy. */
const COPY_TRAFFIC = 2;
/**
 * By how much a fold's rate of input exceeds memcpy's when both move bytes at the same speed: a fold
 * writes one byte for every four that it reads, a copy one for each.
 */
export const BOUND = COPY_TRAFFIC / FOLD_TRAFFIC;

/** Bytes that one timed sample handles at least, so that the clock's grain does not show. */
const SAMPLE_BYTES = 4 << 20;
/** Time in ms that a contender runs before it is measured. */
const WARM_UP_MS = 40;
/** Time in ms after which a slow contender sits out a size's further rounds. */
const PATIENCE_MS = 1_500;
/** Samples that it takes even so. */
const LEAST_SAMPLES = 3;

/** The name of a contender. */
export type Contender = "memcpy" | KernelName;

/** What one size showed. */
export interface KernelRow {
  /** Bytes of one input. */
  readonly bytes: number;
  /** Median GB/s (1e9) of input by contender. */
  readonly rates: Readonly<Partial<Record<Contender, number>>>;
}

/** What a run showed. */
export interface KernelFigures {
  readonly rows: readonly KernelRow[];
  /** The adapter behind ort-webgpu, where one was measured. */
  readonly adapter?: { readonly name: string; readonly software: boolean };
  /** Why a backend is missing from the rows. */
  readonly missing: Readonly<Partial<Record<KernelName, string>>>;
  readonly rounds: number;
}

/** What to measure. */
export interface KernelPlan {
  readonly sizes: readonly number[];
  /** Samples of each contender at each size. */
  readonly rounds: number;
  /** ONNX Runtime's providers to take along. */
  readonly providers: readonly OrtProvider[];
  /** Told of each size that was measured, and with what. */
  readonly progress?: (bytes: number, what: string) => void;
}

interface Runner {
  readonly name: Contender;
  /** Bytes of input of one run. */
  readonly input: number;
  readonly run: () => void | Promise<void>;
  readonly samples: number[];
  spent: number;
}

const median = (values: readonly number[]): number => {
  const sorted = values.toSorted((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 === 1 ? sorted[middle]! : (sorted[middle - 1]! + sorted[middle]!) / 2;
};

async function sample(runner: Runner, bytes: number): Promise<void> {
  const runs = runner.name.startsWith("ort") ? 1 : Math.max(1, Math.ceil(SAMPLE_BYTES / bytes));
  // What the one before left in the caches is not this one's affair.
  const first = runner.run();
  if (first !== undefined) await first;
  const start = performance.now();
  for (let i = 0; i < runs; i++) {
    const result = runner.run();
    if (result !== undefined) await result;
  }
  const ms = performance.now() - start;
  runner.samples.push((runner.input * runs) / (ms * 1e6));
  runner.spent += ms;
}

/** Samples all runners in turns, after turns that are not counted: code is compiled, buffers are made. */
async function takeTurns(
  runners: readonly Runner[],
  bytes: number,
  rounds: number,
): Promise<void> {
  for (const runner of runners) {
    do await sample(runner, bytes); while (runner.spent < WARM_UP_MS);
    runner.samples.length = 0;
  }
  for (let round = 0; round < rounds; round++) {
    for (const runner of runners) {
      if (round >= LEAST_SAMPLES && runner.spent > PATIENCE_MS) continue;
      await sample(runner, bytes);
    }
  }
}

/** The memory of a run, and the contenders made for it. */
class Bench {
  readonly arena = new Arena();
  readonly rates = new Map<number, Partial<Record<Contender, number>>>();
  readonly #runs: F32Bytes[];

  constructor(readonly plan: KernelPlan) {
    const largest = Math.max(...plan.sizes);
    this.#runs = Array.from({ length: INPUTS + 1 }, () => this.arena.alloc(largest));
    for (const run of this.#runs) {
      new Float32Array(run.buffer, run.byteOffset, largest / 4).fill(1.1);
    }
  }

  folding(kernel: FoldKernel, bytes: number): Runner {
    const [out, ...inputs] = this.#runs.map((run) => run.subarray(0, bytes));
    const run = () => {
      const sum = kernel.begin(out!);
      const added = sum.add(inputs);
      return added === undefined ? sum.finish() : added.then(() => sum.finish());
    };
    return { name: kernel.name, input: bytes * INPUTS, run, samples: [], spent: 0 };
  }

  async measure(runnersFor: (bytes: number) => Runner[], what: string): Promise<void> {
    for (const bytes of this.plan.sizes) {
      const runners = runnersFor(bytes);
      await takeTurns(runners, bytes, this.plan.rounds);
      const rates = Object.fromEntries(runners.map(({ name, samples }) => [name, median(samples)]));
      this.rates.set(bytes, { ...this.rates.get(bytes), ...rates });
      this.plan.progress?.(bytes, what);
    }
  }
}

/**
 * Folds {@link INPUTS} inputs of each size with every kernel, and copies one input. The CPU's contenders
 * take turns; ONNX Runtime comes after them, since its compilation goes on in the background for seconds.
 *
 * @throws {Error} when a kernel fails while it is measured: its fallback's speed would be reported.
 */
export async function measureKernels(plan: KernelPlan): Promise<KernelFigures> {
  const bench = new Bench(plan);
  const largest = Math.max(...plan.sizes);
  // Ordinary memory, where a copy is the C library's memcpy; shared memory is copied more slowly.
  const from = new Uint8Array(largest).fill(1);
  const to = new Uint8Array(largest).fill(2);
  const copying = (bytes: number): Runner => {
    const source = from.subarray(0, bytes);
    const target = to.subarray(0, bytes);
    const run = () => target.set(source);
    return { name: "memcpy", input: bytes, run, samples: [], spent: 0 };
  };
  const simd = SimdKernel.create(bench.arena);
  const plain = new PlainKernel();
  await bench.measure(
    (bytes) => [copying(bytes), bench.folding(simd, bytes), bench.folding(plain, bytes)],
    "on the CPU",
  );

  const missing: Partial<Record<KernelName, string>> = {};
  let adapter: KernelFigures["adapter"];
  for (const provider of plan.providers) {
    let kernel: OrtKernel;
    try {
      kernel = await OrtKernel.open({ provider, fallback: plain });
    } catch (error) {
      missing[`ort-${provider}`] = error instanceof Error ? error.message : String(error);
      continue;
    }
    try {
      await bench.measure((bytes) => [bench.folding(kernel, bytes)], kernel.name);
      if (kernel.failure !== undefined) throw new Error(`${kernel.name}: ${kernel.failure}`);
      if (provider === "webgpu") {
        adapter = { name: kernel.opened.adapter, software: kernel.opened.software };
      }
    } finally {
      await kernel.close();
    }
  }
  return {
    rows: [...bench.rates].map(([bytes, rates]) => ({ bytes, rates })),
    missing,
    rounds: plan.rounds,
    ...(adapter === undefined ? {} : { adapter }),
  };
}
