/**
 * The figures of `deno task bench:soak`, their table and their plots.
 *
 * @module
 */

import type { Plot } from "./bench_plots.ts";
import type { Machine } from "./figures.ts";
import { linePlot } from "./plot.ts";
import type { RssSample, RssTrend } from "./rss_sampler.ts";
import { formatMs, formatSize } from "./sizes.ts";
import type { Table } from "./table.ts";

/** What a soak found out. */
export interface SoakResult {
  /** The plan's name. */
  name: string;
  /** Ranks in all. */
  ranks: number;
  /** Relays. */
  relays: number;
  /** f32 bytes per rank. */
  bytes: number;
  /** Measured rounds, all of which ended well. */
  rounds: number;
  /** How long they took, in seconds. */
  seconds: number;
  /** Median round in milliseconds. */
  median_ms: number;
  /** 99th percentile in milliseconds. */
  p99_ms: number;
  /** Whether relays and controller all ended with exit code 0. */
  clean_end: boolean;
  /** Memory by role. */
  memory: Record<string, RssTrend>;
  /** Memory over time. */
  samples: RssSample[];
}

/** Everything that `deno task bench:soak` found out. */
export interface SoakFigures {
  /** When it ended, ISO 8601, UTC. */
  date: string;
  /** Where. */
  machine: Machine;
  /** The soaks. */
  soaks: SoakResult[];
}

/** Soaks as a table, one line per role. */
export function soakTable(soaks: readonly SoakResult[]): Table {
  const mb = (value: number) => `${value.toFixed(1)} MB`;
  return {
    header: [
      "soak",
      "rounds",
      "median",
      "p99",
      "role",
      "processes",
      "RSS early",
      "RSS late",
      "change",
      "peak",
    ],
    rows: soaks.flatMap((one) =>
      Object.entries(one.memory).map(([role, trend]) => [
        `${one.ranks} ranks, ${one.relays} relays, ${formatSize(one.bytes)}`,
        one.rounds.toLocaleString("en-US"),
        formatMs(one.median_ms),
        formatMs(one.p99_ms),
        role,
        String(trend.processes),
        mb(trend.early_mb),
        mb(trend.late_mb),
        mb(trend.late_mb - trend.early_mb),
        mb(trend.peak_mb),
      ])
    ),
  };
}

/** Memory over time. */
export function soakPlot(result: SoakResult): Plot {
  const title = `Resident memory: ${result.ranks} ranks on ${result.relays} relays, ` +
    `${result.rounds.toLocaleString("en-US")} rounds of ${formatSize(result.bytes)}`;
  const svg = linePlot({
    title,
    xLabel: "seconds",
    yLabel: "MB, mean of the role's processes",
    xLog: false,
    series: Object.keys(result.memory).map((role) => ({
      name: role,
      points: result.samples.map(({ t_s, rss_mb }) => [t_s, rss_mb[role] ?? NaN] as const),
    })),
  });
  return { file: `soak-${result.name}.svg`, title, svg };
}
