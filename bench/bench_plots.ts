/**
 * The SVG plots of a bench's rows.
 *
 * @module
 */

import type { ContenderName, DetailRow } from "./figures.ts";
import type { Series } from "./plot.ts";
import { linePlot } from "./plot.ts";
import { formatSize } from "./sizes.ts";

/** A plot and the name of its file. */
export interface Plot {
  /** File name, with .svg. */
  file: string;
  /** The caption. */
  title: string;
  /** The document. */
  svg: string;
}

/** Every plot that the rows suffice for. */
export function benchPlots(rows: readonly DetailRow[]): Plot[] {
  const ranks = preferred(rows.map((row) => row.ranks), 4);
  const bytes = preferred(rows.map((row) => row.bytes), 64 * 1024 ** 2);
  const sameRanks = rows.filter((row) => row.ranks === ranks);
  const sameSize = rows.filter((row) => row.bytes === bytes);
  const plots: Plot[] = [];
  const add = (file: string, title: string, yLabel: string, of: readonly DetailRow[], options: {
    x: (row: DetailRow) => number;
    y: (row: DetailRow) => number;
    xLabel: string;
    xTick?: (x: number) => string;
    bound?: boolean;
  }): void => {
    const lines = series(of, options.x, options.y);
    if (options.bound) lines.push(...boundSeries(of, options.x));
    if (lines.every((line) => line.points.length < 2)) return;
    const { xLabel, xTick } = options;
    const svg = linePlot({
      title,
      xLabel,
      yLabel,
      xLog: true,
      yLog: true,
      series: lines,
      ...(xTick === undefined ? {} : { xTick }),
    });
    plots.push({ file, title, svg });
  };
  const bySize = {
    x: (row: DetailRow) => row.bytes,
    xLabel: "f32 bytes per rank",
    xTick: formatSize,
  };
  const byRanks = { x: (row: DetailRow) => row.ranks, xLabel: "ranks" };
  const of = `${ranks} ranks, one host`;
  add("round-by-size.svg", `Median round, ${of}`, "ms", sameRanks, {
    ...bySize,
    y: (row) => row.median_ms,
    bound: true,
  });
  add("p99-by-size.svg", `99th percentile of a round, ${of}`, "ms", sameRanks, {
    ...bySize,
    y: (row) => row.p99_ms,
  });
  add("cpu-by-size.svg", `CPU per process and round, ${of}`, "CPU ms", sameRanks, {
    ...bySize,
    // Rounds that cost less than the clock's step have no place on a logarithmic axis.
    y: (row) => row.cpu_s > 0 ? row.cpu_s * 1e3 : NaN,
  });
  const at = `${formatSize(bytes)} per rank`;
  add("round-by-ranks.svg", `Median round, ${at}`, "ms", sameSize, {
    ...byRanks,
    y: (row) => row.median_ms,
    bound: true,
  });
  add("cpu-by-ranks.svg", `CPU per process and round, ${at}`, "CPU ms", sameSize, {
    ...byRanks,
    y: (row) => row.cpu_s > 0 ? row.cpu_s * 1e3 : NaN,
  });
  return plots;
}

/** The wanted value when it was measured, else the largest that was. */
function preferred(values: readonly number[], wanted: number): number {
  return values.includes(wanted) ? wanted : Math.max(...values);
}

function series(
  rows: readonly DetailRow[],
  x: (row: DetailRow) => number,
  y: (row: DetailRow) => number,
): Series[] {
  const names: ContenderName[] = [...new Set(rows.map((row) => row.name))];
  return names.map((name) => ({
    name,
    points: rows.filter((row) => row.name === name).map((row) => [x(row), y(row)] as const),
  }));
}

function boundSeries(rows: readonly DetailRow[], x: (row: DetailRow) => number): Series[] {
  const own = rows.filter((row) => row.name === "tierfold");
  if (own.length === 0) return [];
  return [{
    name: "bound",
    points: own.map((row) => [x(row), row.bound_ms ?? NaN] as const),
  }];
}
