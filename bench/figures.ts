/**
 * The shape of a bench's figures, and the small statistics made of them.
 *
 * @module
 */

/** Whose figures a row holds. */
export type ContenderName = "tierfold" | "tierfold-bf16" | "gloo" | "mpi-tcp" | "echo";

/** One line of the raw figures written by `--json`. */
export interface FigureRow {
  /** Whose rounds these are. */
  name: ContenderName;
  /** Ranks in the round. */
  ranks: number;
  /** f32 bytes per rank, whatever travels on the wire. */
  bytes: number;
  /** Median round in milliseconds, over all ranks and measured rounds of all runs. */
  median_ms: number;
  /** 99th percentile of the same rounds, in milliseconds; with few rounds it is near their maximum. */
  p99_ms: number;
  /** CPU seconds per process and round, the mean over all processes of the cluster. */
  cpu_s: number;
  /** Peak resident memory of the largest process, in MB (10^6 bytes). */
  rss_mb: number;
  /** The machine's bound for this round, in milliseconds; on rows of the authenticated protocol. */
  bound_ms?: number;
}

/** CPU and memory of the processes of one role. */
export interface RoleFigures {
  /** How many processes have this role. */
  processes: number;
  /** CPU seconds per process and round, the mean over them and over runs. */
  cpu_s: number;
  /** The largest peak resident memory among them, in MB. */
  rss_mb: number;
}

/** A row with what the report says beyond it. */
export interface DetailRow extends FigureRow {
  /** Medians of the interleaved runs, in the order they were made, in milliseconds. */
  run_medians_ms: number[];
  /** Measured rounds of one run. */
  rounds: number;
  /** Figures by role: rank, relay, controller, server. */
  roles: Record<string, RoleFigures>;
}

/** A measurement that was not made, and why. */
export interface Skip {
  /** Whose. */
  name: string;
  /** At how many ranks; 0 for all. */
  ranks: number;
  /** At which size; 0 for all. */
  bytes: number;
  /** Why, in a few words. */
  reason: string;
}

/** The machine a bench ran on. */
export interface Machine {
  /** The processor's model as the kernel names it, with family and model numbers. */
  cpu: string;
  /** Cores that this process may use. */
  cores: number;
  /** Memory in GiB. */
  memory_gib: number;
  /** Kernel name and release. */
  kernel: string;
  /** Deno's version. */
  deno: string;
}

/** Everything one `deno task bench` found out. */
export interface BenchFigures {
  /** When it ended, ISO 8601, UTC. */
  date: string;
  /** Where. */
  machine: Machine;
  /** HMAC-SHA256 of one core alone, in GB/s (10^9 bytes). */
  hash_gb_s: number;
  /** The same per core while all cores hash at once. */
  hash_all_gb_s: number;
  /** The bound of the reference round, 64 MiB per rank, 4 ranks, one relay, in milliseconds. */
  bound_ms: number;
  /** Interleaved runs per row. */
  runs: number;
  /** Measured rows. */
  rows: DetailRow[];
  /** Rows that were not measured. */
  skipped: Skip[];
}

/**
 * What `--json` writes: `{ machine, hash_gb_s, bound_ms, rows }`, each row with the keys of
 * {@link FigureRow} and no other.
 */
export function rawFigures(figures: BenchFigures): {
  machine: Machine;
  hash_gb_s: number;
  bound_ms: number;
  rows: FigureRow[];
} {
  return {
    machine: figures.machine,
    hash_gb_s: figures.hash_gb_s,
    bound_ms: figures.bound_ms,
    rows: figures.rows.map((row) => ({
      name: row.name,
      ranks: row.ranks,
      bytes: row.bytes,
      median_ms: row.median_ms,
      p99_ms: row.p99_ms,
      cpu_s: row.cpu_s,
      rss_mb: row.rss_mb,
      ...(row.bound_ms === undefined ? {} : { bound_ms: row.bound_ms }),
    })),
  };
}

/**
 * The p-quantile (0 to 1) of the values by the nearest rank; the median of an even count is the mean
 * of the middle two.
 *
 * @throws {RangeError} When there are no values.
 */
export function quantile(values: readonly number[], p: number): number {
  if (values.length === 0) throw new RangeError("a quantile of no values was asked for");
  const sorted = values.toSorted((a, b) => a - b);
  if (p === 0.5 && sorted.length % 2 === 0) {
    const upper = sorted.length / 2;
    return ((sorted[upper - 1] ?? NaN) + (sorted[upper] ?? NaN)) / 2;
  }
  const rank = Math.min(sorted.length, Math.max(1, Math.ceil(p * sorted.length)));
  return sorted[rank - 1] ?? NaN;
}

/** The median of the values. Throws as {@link quantile} does. */
export function median(values: readonly number[]): number {
  return quantile(values, 0.5);
}

/** The mean of the values, 0 of none. */
export function mean(values: readonly number[]): number {
  return values.length === 0 ? 0 : values.reduce((sum, value) => sum + value, 0) / values.length;
}

/** Rounds to so many significant digits, so that files stay readable. */
export function significant(value: number, digits = 4): number {
  return Number(value.toPrecision(digits));
}
