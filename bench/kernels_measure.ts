/**
 * Measures the fold kernels next to memcpy, taking turns so that all see the same machine.
 *
 * @module
 */

import { Arena } from "../kernels/arena.ts";
import type { FoldKernel, KernelName } from "../kernels/kernel.ts";
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
const SAMPLE_BYTES = 1 << 20;
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
  readonly adapter?: string;
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
  /** Told of each finished row. */
  readonly progress?: (row: KernelRow) => void;
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
  const start = performance.now();
  for (let i = 0; i < runs; i++) {
    const result = runner.run();
    if (result !== undefined) await result;
  }
  const ms = performance.now() - start;
  runner.samples.push((runner.input * runs) / (ms * 1e6));
  runner.spent += ms;
}

/** Opens the ONNX Runtime kernels that can be had, and says of the others why not. */
async function openOrt(providers: readonly OrtProvider[], fallback: FoldKernel) {
  const kernels: OrtKernel[] = [];
  const missing: Partial<Record<KernelName, string>> = {};
  for (const provider of providers) {
    try {
      kernels.push(await OrtKernel.open({ provider, fallback }));
    } catch (error) {
      missing[`ort-${provider}`] = error instanceof Error ? error.message : String(error);
    }
  }
  return { kernels, missing };
}

/**
 * Folds {@link INPUTS} inputs of each size with every kernel, and copies one input, in turns.
 *
 * @throws {Error} when a kernel fails while it is measured: its fallback's speed would be reported.
 */
export async function measureKernels(plan: KernelPlan): Promise<KernelFigures> {
  const arena = new Arena();
  const largest = Math.max(...plan.sizes);
  const runs = Array.from({ length: INPUTS + 1 }, () => arena.alloc(largest));
  for (const run of runs) new Float32Array(run.buffer, run.byteOffset, largest / 4).fill(1.1);
  // Ordinary memory, where a copy is the C library's memcpy; shared memory is copied more slowly.
  const from = new Uint8Array(largest).fill(1);
  const to = new Uint8Array(largest).fill(2);

  const plain = new PlainKernel();
  const { kernels: ort, missing } = await openOrt(plan.providers, plain);
  const kernels: FoldKernel[] = [SimdKernel.create(arena), plain, ...ort];
  const rows: KernelRow[] = [];
  try {
    for (const bytes of plan.sizes) {
      const [out, ...inputs] = runs.map((run) => run.subarray(0, bytes));
      const source = from.subarray(0, bytes);
      const target = to.subarray(0, bytes);
      const runners: Runner[] = [
        { name: "memcpy", input: bytes, run: () => target.set(source), samples: [], spent: 0 },
        ...kernels.map((kernel): Runner => ({
          name: kernel.name,
          input: bytes * INPUTS,
          run: () => {
            const sum = kernel.begin(out!);
            const added = sum.add(inputs);
            if (added === undefined) return sum.finish();
            return added.then(() => sum.finish());
          },
          samples: [],
          spent: 0,
        })),
      ];
      // One turn that is not counted: code is compiled, buffers are made.
      for (const runner of runners) await sample(runner, bytes);
      for (const runner of runners) runner.samples.length = 0;
      for (let round = 0; round < plan.rounds; round++) {
        for (const runner of runners) {
          if (round >= LEAST_SAMPLES && runner.spent > PATIENCE_MS) continue;
          await sample(runner, bytes);
        }
      }
      const rates = Object.fromEntries(runners.map(({ name, samples }) => [name, median(samples)]));
      const row: KernelRow = { bytes, rates };
      rows.push(row);
      plan.progress?.(row);
    }
    const failed = ort.find(({ failure }) => failure !== undefined);
    if (failed !== undefined) throw new Error(`${failed.name} failed: ${failed.failure}`);
  } finally {
    for (const kernel of kernels) await kernel.close();
  }
  const adapter = ort.find(({ name }) => name === "ort-webgpu")?.opened.adapter;
  return { rows, missing, rounds: plan.rounds, ...(adapter === undefined ? {} : { adapter }) };
}
