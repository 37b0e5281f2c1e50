/**
 * Measures kernels over a ladder of sizes, and says from which size on which of them is the fastest.
 *
 * @module
 */
import { Arena } from "./arena.ts";
import type { F32Bytes, FoldKernel, KernelName } from "./kernel.ts";

/** One size, and what each kernel made of it. */
export interface Rung {
  /** Bytes of one input. */
  readonly bytes: number;
  /** GB/s (1e9 bytes of all inputs together) of each measured kernel. */
  readonly rates: Readonly<Partial<Record<KernelName, number>>>;
  /** The kernel for tensors of at least this size, and below the next rung's. */
  readonly pick: KernelName;
}

const KiB = 1024;
const MiB = 1024 * KiB;

/** Sizes at which processors are told apart; beyond the caches nothing changes. */
export const CPU_LADDER: readonly number[] = [4 * KiB, 64 * KiB, 1 * MiB, 8 * MiB];
/** A GPU, with its transfers, may start to pay only later. */
export const GPU_LADDER: readonly number[] = [...CPU_LADDER, 32 * MiB, 64 * MiB];

/** Inputs of a measured fold: a relay with four ranks. */
export const INPUTS = 4;
/** Time spent on one kernel and size, in ms, where the budget allows. */
const SLICE_MS = 25;
const LEAST_RUNS = 3;
/** What a later kernel must gain to be preferred: readings vary by a few percent. */
const MARGIN = 1.1;

/** Rates by size and kernel, filled in as far as the deadline allowed. */
export type Rates = Map<number, Partial<Record<KernelName, number>>>;

/** The memory that measurements use: given back with the object, so that no frame pays for it. */
export class MeasuringGround {
  /** The memory itself, for kernels that work in one. */
  readonly arena: Arena = new Arena();
  readonly #runs: F32Bytes[];

  /**
   * Takes the memory.
   *
   * @param largest Bytes of the largest input that will be measured.
   */
  constructor(largest: number) {
    this.#runs = Array.from({ length: INPUTS + 1 }, () => this.arena.alloc(largest));
    for (const [k, run] of this.#runs.entries()) {
      new Float32Array(run.buffer, run.byteOffset, run.length / 4).fill(k + 0.1);
    }
  }

  /**
   * GB/s of input of one kernel at one size: the fastest of the runs that fit the time, each a fold of
   * {@link INPUTS} inputs, scaled, as a caller sees it. At least one run, whatever the deadline.
   */
  async measure(kernel: FoldKernel, bytes: number, deadline: number): Promise<number> {
    const [out, ...inputs] = this.#runs.map((run) => run.subarray(0, bytes));
    const end = Math.min(deadline, performance.now() + SLICE_MS);
    let fastest = Infinity;
    for (let runs = 0; runs === 0 || this.#more(runs, end, deadline); runs++) {
      const start = performance.now();
      const sum = kernel.begin(out!);
      await sum.add(inputs);
      await sum.finish(1 / INPUTS);
      fastest = Math.min(fastest, performance.now() - start);
    }
    return (bytes * INPUTS) / (fastest * 1e6);
  }

  #more(runs: number, end: number, deadline: number): boolean {
    const now = performance.now();
    return now < end || (runs < LEAST_RUNS && now < deadline);
  }

  /** Measures `kernel` at all `sizes`, until performance.now() reaches `deadline`. */
  async climb(
    kernel: FoldKernel,
    sizes: readonly number[],
    rates: Rates,
    deadline: number,
  ): Promise<void> {
    for (const bytes of sizes) {
      if (performance.now() >= deadline) return;
      const row = rates.get(bytes) ?? {};
      rates.set(bytes, { ...row, [kernel.name]: await this.measure(kernel, bytes, deadline) });
    }
  }
}

/**
 * The picks for measured rates. Of the CPU kernels the fastest at each size; a GPU only from a size on
 * from which it is faster at every one, so that one lucky reading decides nothing.
 *
 * @param cpu CPU kernels that may be picked, the preferred ones first.
 * @param gpu The GPU kernel, where it may be picked.
 */
export function pickKernels(
  rates: Rates,
  cpu: readonly KernelName[],
  gpu: KernelName | undefined,
): Rung[] {
  const rungs: Rung[] = [...rates].sort(([a], [b]) => a - b).map(([bytes, row]) => {
    let pick = cpu[0]!;
    for (const name of cpu) if ((row[name] ?? 0) > (row[pick] ?? 0) * MARGIN) pick = name;
    return { bytes, rates: row, pick };
  });
  if (gpu === undefined) return rungs;
  const compared = rungs.filter(({ rates: row }) => row[gpu] !== undefined);
  const wins = ({ rates: row, pick }: Rung) => row[gpu]! > (row[pick] ?? 0) * MARGIN;
  const last = compared.findLastIndex((rung) => !wins(rung));
  const from = compared[last + 1]?.bytes ?? Infinity;
  return rungs.map((rung) => rung.bytes >= from ? { ...rung, pick: gpu } : rung);
}

/** A size as people write it. */
export function formatBytes(bytes: number): string {
  if (bytes >= MiB) return `${bytes / MiB} MiB`;
  return bytes >= KiB ? `${bytes / KiB} KiB` : `${bytes} B`;
}

/** The ladder as a table of text: one row a size, GB/s of input by kernel, and the pick. */
export function formatLadder(rungs: readonly Rung[]): string {
  const names = [...new Set(rungs.flatMap(({ rates }) => Object.keys(rates)))] as KernelName[];
  const rows = [
    ["size of an input", ...names.map((name) => `${name} GB/s`), "pick"],
    ...rungs.map(({ bytes, rates, pick }) => [
      formatBytes(bytes),
      ...names.map((name) => rates[name]?.toPrecision(3) ?? "-"),
      pick,
    ]),
  ];
  const widths = rows[0]!.map((_, c) => Math.max(...rows.map((row) => row[c]!.length)));
  return rows.map((row) => row.map((cell, c) => cell.padStart(widths[c]!)).join("  ")).join("\n");
}
