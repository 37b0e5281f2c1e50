/**
 * What a chaos run comes to.
 *
 * @module
 */
import { type Machine, median } from "../figures.ts";
import { machineLine } from "../machine.ts";
import { asText } from "../table.ts";

/** How a kind of fault went. */
export interface FaultFigures {
  readonly kind: string;
  readonly count: number;
  /** Until a round that had begun after the fault was over, for some rank; milliseconds. */
  readonly next_ms: { readonly median: number; readonly max: number };
  /** From the end of the fault until a round with every rank was over; milliseconds. */
  readonly whole_ms: { readonly median: number; readonly max: number };
}

/** What went wrong. */
export interface Violation {
  readonly kind: "wrong result" | "hang" | "lost checkpoint" | "crash";
  readonly what: string;
}

/** A whole run. */
export interface ChaosReport {
  readonly seed: number;
  readonly seconds: number;
  readonly machine: Machine;
  readonly rounds: number;
  readonly rounds_per_second: number;
  readonly faults: readonly FaultFigures[];
  /** Faults that could not be tried, with the reason. */
  readonly skipped: readonly string[];
  readonly wrong_results: number;
  readonly hangs: number;
  readonly lost_checkpoints: number;
  readonly crashes: number;
  readonly acknowledged_checkpoints: number;
  /** Writes of checkpoints and ledger that failed, as they must on a full disk. */
  readonly failed_writes: number;
  /** Connections of strangers. */
  readonly bad_inputs: number;
  readonly restarts: {
    readonly controller: number;
    readonly relays: number;
    readonly ranks: number;
  };
  /** How often a rank was out and came back by itself. */
  readonly comebacks: number;
  readonly violations: readonly Violation[];
}

/** The times of one fault, in milliseconds. */
export interface FaultTimes {
  readonly kind: string;
  readonly nextMs: number;
  readonly wholeMs: number;
}

/** The figures of each kind, in the order of `kinds`. */
export function faultFigures(
  kinds: readonly string[],
  times: readonly FaultTimes[],
): FaultFigures[] {
  const spread = (values: readonly number[]) => ({
    median: Math.round(median(values)),
    max: Math.round(Math.max(...values)),
  });
  return kinds.flatMap((kind) => {
    const mine = times.filter((one) => one.kind === kind);
    if (mine.length === 0) return [];
    return [{
      kind,
      count: mine.length,
      next_ms: spread(mine.map(({ nextMs }) => nextMs)),
      whole_ms: spread(mine.map(({ wholeMs }) => wholeMs)),
    }];
  });
}

/** 0 when nothing went wrong, 1 otherwise. */
export function exitCode({ violations, rounds }: ChaosReport): number {
  return violations.length === 0 && rounds > 0 ? 0 : 1;
}

/** The report as a person reads it. */
export function asReport(report: ChaosReport): string {
  const { restarts } = report;
  const seconds = (ms: number) => `${(ms / 1000).toFixed(1)} s`;
  const table = asText({
    header: ["fault", "times", "next round: median", "max", "all ranks again: median", "max"],
    rows: report.faults.map(({ kind, count, next_ms, whole_ms }) => [
      kind,
      `${count}`,
      ...[next_ms.median, next_ms.max, whole_ms.median, whole_ms.max].map(seconds),
    ]),
  });
  return [
    machineLine(report.machine),
    `seed ${report.seed}: ${report.rounds} rounds in ${report.seconds.toFixed(0)} s, ` +
    `${report.rounds_per_second.toFixed(1)} a second`,
    "",
    table,
    ...report.skipped.map((what) => `skipped: ${what}`),
    "",
    `wrong results        ${report.wrong_results}`,
    `hangs                ${report.hangs}`,
    `lost checkpoints     ${report.lost_checkpoints} of ${report.acknowledged_checkpoints}`,
    `crashes              ${report.crashes}`,
    `failed writes        ${report.failed_writes}: the disk was full`,
    `bad inputs           ${report.bad_inputs} connections`,
    `started again        ${restarts.controller} x controller, ${restarts.relays} x relay, ` +
    `${restarts.ranks} x rank; ${report.comebacks} times a rank came back by itself`,
    ...report.violations.slice(0, 10).map(({ kind, what }) => `\n${kind.toUpperCase()}: ${what}`),
  ].join("\n");
}
