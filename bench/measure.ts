/**
 * Makes the measurements of a plan, contenders interleaved, and turns them into rows.
 *
 * @module
 */

import { boundMs } from "./bound.ts";
import type { Contender, RoundPlan, Sample, Session } from "./contender.ts";
import type { DetailRow, RoleFigures, Skip } from "./figures.ts";
import { mean, median, quantile, significant } from "./figures.ts";
import type { HashRate } from "./hash_rate.ts";
import type { BenchPlan } from "./plan.ts";
import { runsOf } from "./plan.ts";
import { availableBytes } from "./proc.ts";
import { formatMs, formatSize } from "./sizes.ts";

/** Of the memory that is available, the part that one contender's processes may have. */
const MEMORY_PART = 0.85;

/** What a larger round is taken to cost until it was measured, in bytes per rank and millisecond. */
const FORETOLD_BYTES_PER_MS = 60_000;

/** What a measurement needs to know. */
export interface MeasureOptions {
  /** Sizes, ranks and runs. */
  plan: BenchPlan;
  /** Who takes part, in the order of each run. */
  contenders: readonly Contender[];
  /** For the bounds. */
  hash: HashRate;
  /** When the bench began, on the clock of performance.now(). */
  startedAt: number;
  /** Told about every step. */
  progress: (line: string) => void;
}

/** Rows and skips of a bench. */
export interface Measured {
  /** One per contender, number of ranks and size. */
  rows: DetailRow[];
  /** What was left out. */
  skipped: Skip[];
}

/** Runs the whole plan. A contender that fails is skipped by name; the others go on. */
export async function measure(options: MeasureOptions): Promise<Measured> {
  const { plan, progress } = options;
  const skipped: Skip[] = [];
  const present: Contender[] = [];
  for (const contender of options.contenders) {
    const reason = await contender.unavailable();
    if (reason === undefined) present.push(contender);
    else skipped.push({ name: contender.name, ranks: 0, bytes: 0, reason });
  }
  for (const { name, reason } of skipped) progress(`skipped: ${name}, ${reason}`);

  const rows: DetailRow[] = [];
  const clock = new Clock(plan, options.startedAt);
  for (const ranks of plan.ranks) {
    const stage = new Stage(ranks, clock, skipped, progress);
    try {
      for (const bytes of plan.sizes) {
        const rounds = plan.rounds(bytes);
        const samples = await stage.interleave(present, rounds, runsOf(plan, bytes));
        for (const [contender, of] of samples) {
          rows.push(row(contender, ranks, rounds, of, options.hash));
        }
      }
    } finally {
      await stage.close();
    }
  }
  return { rows, skipped };
}

/** The contenders' processes for one number of ranks. */
class Stage {
  readonly #sessions = new Map<Contender, Session>();
  readonly #ranks: number;
  readonly #clock: Clock;
  readonly #skipped: Skip[];
  readonly #progress: (line: string) => void;

  constructor(ranks: number, clock: Clock, skipped: Skip[], progress: (line: string) => void) {
    this.#ranks = ranks;
    this.#clock = clock;
    this.#skipped = skipped;
    this.#progress = progress;
  }

  /** Makes runs of one size, A B A B; who fails or does not fit is left out of the others. */
  async interleave(
    contenders: readonly Contender[],
    rounds: RoundPlan,
    runs: number,
  ): Promise<Map<Contender, Sample[]>> {
    const samples = new Map<Contender, Sample[]>();
    let taking = contenders;
    for (let run = 0; run < runs; run++) {
      const out = new Set<Contender>();
      for (const contender of taking) {
        const sample = await this.#once(contender, rounds, run);
        if (sample === undefined) out.add(contender);
        else samples.set(contender, [...samples.get(contender) ?? [], sample]);
      }
      taking = taking.filter((contender) => !out.has(contender));
    }
    return samples;
  }

  /** One contender's run of one size, or nothing when it was left out, which is noted. */
  async #once(
    contender: Contender,
    rounds: RoundPlan,
    run: number,
  ): Promise<Sample | undefined> {
    const what = `${contender.name}, ${this.#ranks} ranks, ${formatSize(rounds.bytes)}`;
    const reason = tooLarge(contender, this.#ranks, rounds.bytes) ??
      this.#clock.tooLate(contender, rounds);
    if (reason !== undefined) return this.#leaveOut(contender, rounds, reason);
    try {
      const session = this.#sessions.get(contender) ?? await contender.open(this.#ranks);
      this.#sessions.set(contender, session);
      const begin = performance.now();
      const sample = await session.run(rounds);
      this.#clock.took(contender, rounds, sample, performance.now() - begin);
      this.#progress(`run ${run + 1}: ${what}: ${formatMs(median(sample.ms))}`);
      return sample;
    } catch (error) {
      await this.#sessions.get(contender)?.close();
      this.#sessions.delete(contender);
      const message = error instanceof Error ? error.message : String(error);
      this.#progress(message);
      // What the process wrote is for the terminal; figures keep the first line.
      return this.#leaveOut(
        contender,
        rounds,
        message.split("\n")[0]?.replace(/; it wrote:$/, "") ?? "",
      );
    }
  }

  #leaveOut(contender: Contender, { bytes }: RoundPlan, reason: string): undefined {
    this.#skipped.push({ name: contender.name, ranks: this.#ranks, bytes, reason });
    const what = `${contender.name}, ${this.#ranks} ranks, ${formatSize(bytes)}`;
    this.#progress(`skipped: ${what}: ${reason}`);
  }

  async close(): Promise<void> {
    for (const session of this.#sessions.values()) await session.close();
  }
}

function tooLarge(contender: Contender, ranks: number, bytes: number): string | undefined {
  const needed = contender.memoryBytes(ranks, bytes);
  const available = availableBytes() * MEMORY_PART;
  if (needed <= available) return undefined;
  const mb = (value: number) => `${Math.round(value / 1e6)} MB`;
  return `needs about ${mb(needed)} of memory, ${mb(available)} may be used`;
}

/** Foretells from each contender's last measurement whether the next one fits into the budget. */
class Clock {
  readonly #plan: BenchPlan;
  readonly #startedAt: number;
  readonly #last = new Map<Contender, { overheadMs: number; roundMs: number; bytes: number }>();

  constructor(plan: BenchPlan, startedAt: number) {
    this.#plan = plan;
    this.#startedAt = startedAt;
  }

  took(contender: Contender, rounds: RoundPlan, sample: Sample, elapsedMs: number): void {
    const roundMs = median(sample.ms);
    const overheadMs = Math.max(0, elapsedMs - (rounds.warm + rounds.rounds) * roundMs);
    this.#last.set(contender, { overheadMs, roundMs, bytes: rounds.bytes });
  }

  tooLate(contender: Contender, rounds: RoundPlan): string | undefined {
    const { budgetMs } = this.#plan;
    if (budgetMs === undefined) return undefined;
    const last = this.#last.get(contender);
    const roundMs = last === undefined
      ? 0
      : last.roundMs + Math.max(0, rounds.bytes - last.bytes) / FORETOLD_BYTES_PER_MS;
    const needed = (last?.overheadMs ?? 0) + roundMs * (rounds.warm + rounds.rounds + 1);
    const left = budgetMs - (performance.now() - this.#startedAt);
    return needed <= left ? undefined : "it would not end within the minute of --quick";
  }
}

/** Joins the runs of one contender, number of ranks and size. */
function row(
  contender: Contender,
  ranks: number,
  { bytes, rounds }: RoundPlan,
  samples: readonly Sample[],
  hash: HashRate,
): DetailRow {
  const ms = samples.flatMap((sample) => sample.ms);
  const roles: Record<string, RoleFigures> = {};
  for (const role of Object.keys(samples[0]?.roles ?? {})) {
    const of = samples.map((sample) => sample.roles[role]).filter((one) => one !== undefined);
    roles[role] = {
      processes: of[0]?.processes ?? 0,
      cpu_s: significant(mean(of.map((one) => one.cpu_s))),
      rss_mb: significant(Math.max(...of.map((one) => one.rss_mb))),
    };
  }
  const all = Object.values(roles);
  const processes = all.reduce((sum, role) => sum + role.processes, 0);
  const cpu = all.reduce((sum, role) => sum + role.processes * role.cpu_s, 0);
  const wireBytes = contender.name === "tierfold-bf16" ? bytes / 2 : bytes;
  const cores = navigator.hardwareConcurrency;
  return {
    name: contender.name,
    ranks,
    bytes,
    median_ms: significant(median(ms)),
    p99_ms: significant(quantile(ms, 0.99)),
    cpu_s: significant(cpu / processes),
    rss_mb: Math.max(...all.map((role) => role.rss_mb)),
    ...(contender.name.startsWith("tierfold")
      ? { bound_ms: significant(boundMs({ ranks, hosts: 1, wireBytes }, hash.alone, cores)) }
      : {}),
    run_medians_ms: samples.map((sample) => significant(median(sample.ms))),
    rounds,
    roles,
  };
}
