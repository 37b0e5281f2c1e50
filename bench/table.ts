/**
 * Figures as aligned text for a terminal and as a Markdown table: the same cells.
 *
 * @module
 */

import type { DetailRow } from "./figures.ts";
import { formatMs, formatSize } from "./sizes.ts";

/** A table: its header and its rows, all of the same length. */
export interface Table {
  /** Names of the columns. */
  header: readonly string[];
  /** Cells as text. */
  rows: readonly (readonly string[])[];
}

/** The table in columns, the first left-aligned, the others right-aligned. */
export function asText({ header, rows }: Table): string {
  const all = [header, ...rows];
  const widths = header.map((_, column) => Math.max(...all.map((row) => row[column]?.length ?? 0)));
  return all.map((row) =>
    row.map((cell, column) => {
      const width = widths[column] ?? 0;
      return column === 0 ? cell.padEnd(width) : cell.padStart(width);
    }).join("  ").trimEnd()
  ).join("\n");
}

/** The table in Markdown, aligned likewise. */
export function asMarkdown({ header, rows }: Table): string {
  const line = (cells: readonly string[]) => `| ${cells.join(" | ")} |`;
  const rule = header.map((_, column) => column === 0 ? "---" : "---:");
  return [line(header), line(rule), ...rows.map(line)].join("\n");
}

/** The bench's rows: times, spread over runs, CPU, memory, and the ratios to bound and gloo. */
export function benchTable(rows: readonly DetailRow[]): Table {
  return {
    header: [
      "who",
      "ranks",
      "size",
      "median",
      "runs",
      "p99",
      "CPU per process",
      "peak RSS",
      "bound",
      "x bound",
      "x gloo",
    ],
    rows: rows.map((row) => {
      const gloo = rows.find((other) =>
        other.name === "gloo" && other.ranks === row.ranks && other.bytes === row.bytes
      );
      return [
        row.name,
        String(row.ranks),
        formatSize(row.bytes),
        formatMs(row.median_ms),
        spread(row.run_medians_ms),
        formatMs(row.p99_ms),
        formatMs(row.cpu_s * 1e3),
        `${Math.round(row.rss_mb)} MB`,
        row.bound_ms === undefined ? "" : formatMs(row.bound_ms),
        row.bound_ms === undefined ? "" : (row.median_ms / row.bound_ms).toFixed(2),
        gloo === undefined ? "" : (row.median_ms / gloo.median_ms).toFixed(2),
      ];
    }),
  };
}

/** The noise: the smallest and the largest median of the runs, without unit. */
export function spread(medians: readonly number[]): string {
  const text = (value: number) => formatMs(value).replace(" ms", "");
  return `${text(Math.min(...medians))}-${text(Math.max(...medians))}`;
}
