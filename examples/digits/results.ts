/**
 * What came out, in words.
 *
 * @module
 */

import type { BaselineReport, EndReport, StartReport } from "./report.ts";

/** How far the consensus may stay behind one process on all digits, in points of accuracy. */
const MAX_BEHIND = 3;

/** Everything measured in one run of the demo. */
export interface Measured {
  /** One per rank. */
  readonly ends: readonly EndReport[];
  /** One per rank, each trained on its own shard without averaging. */
  readonly alone: readonly BaselineReport[];
  /** One process on all digits. */
  readonly all: BaselineReport;
}

/** The verdict on a run. */
export interface Verdict {
  readonly lines: readonly string[];
  /** Whether all ranks ended with the same bits: the one thing that no setting can excuse. */
  readonly sameBits: boolean;
}

/** Describes a rank's shard in a line. */
export function describeShard({ rank, digits, labels, steps }: StartReport): string {
  const many = labels.flatMap((count, label) => count > digits / 20 ? [label] : []);
  return `  rank ${`${rank}`.padEnd(2)}  ${count(digits).padStart(5)} digits, mostly ${
    many.join(" ")
  }; ` +
    `${steps} step${plural(steps)} a round`;
}

/** Puts the accuracies side by side and checks what the demo is to show. */
export function judge({ ends, alone, all }: Measured): Verdict {
  const consensus = ends.find(({ accuracy }) => accuracy !== undefined)?.accuracy ?? NaN;
  const best = Math.max(...alone.map(({ accuracy }) => accuracy));
  const sums = new Set(ends.map(({ sha256 }) => sha256));
  const line = (name: string, accuracy: number, note: string) =>
    `  ${name.padEnd(34)}${percent(accuracy)}  ${note}`.trimEnd();
  const work = ({ steps, digits }: BaselineReport) =>
    `${count(steps)} steps on ${count(digits)} digits`;
  const check = (good: boolean, what: string) => `  ${good ? "yes" : "NO "}  ${what}`;
  const lead = consensus > best
    ? `by ${points(consensus - best)} or more`
    : `best alone is ${points(best - consensus)} better`;
  const gap = all.accuracy - consensus;
  return {
    sameBits: sums.size === 1,
    lines: [
      "Test accuracy, on digits that nobody trained on:",
      line(`consensus of ${ends.length} rank${plural(ends.length)}`, consensus, ""),
      ...alone.map((each) =>
        line(`rank ${each.rank} alone on its own shard`, each.accuracy, work(each))
      ),
      line("one process on all digits", all.accuracy, work(all)),
      "",
      ...(ends.length > 1
        ? [check(consensus > best, `the consensus beats every rank alone: ${lead}`)]
        : []),
      check(
        Math.round(1e4 * gap) <= 100 * MAX_BEHIND,
        `it stays within ${MAX_BEHIND} points of one process on all digits: ` +
          `${points(Math.abs(gap))} ${gap > 0 ? "behind" : "ahead"}`,
      ),
      check(
        sums.size === 1,
        sums.size === 1
          ? `all ranks ended with the same bits: SHA-256 ${[...sums][0]!.slice(0, 16)}...`
          : `all ranks ended with the same bits: ${sums.size} different results`,
      ),
    ],
  };
}

/** A whole number with its thousands marked. */
export function count(value: number): string {
  return value.toLocaleString("en");
}

function percent(share: number): string {
  return `${(100 * share).toFixed(2).padStart(6)} %`;
}

function points(share: number): string {
  return `${(100 * share).toFixed(2)} points`;
}

function plural(many: number): string {
  return many === 1 ? "" : "s";
}
