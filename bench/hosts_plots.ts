/**
 * The SVG plots of rounds across hosts.
 *
 * @module
 */

import type { Plot } from "./bench_plots.ts";
import type { HostsRow } from "./hosts_figures.ts";
import { formatLink } from "./hosts_figures.ts";
import { linePlot } from "./plot.ts";
import { formatSize } from "./sizes.ts";

/** One plot for every number of hosts and link speed. */
export function hostsPlots(rows: readonly HostsRow[]): Plot[] {
  const networks = new Map<string, HostsRow[]>();
  for (const row of rows) {
    const key = `hosts-${row.hosts}-${row.link_bit_s / 1e6}mbit`;
    networks.set(key, [...networks.get(key) ?? [], row]);
  }
  return [...networks].flatMap(([key, of]): Plot[] => {
    const [first] = of;
    if (first === undefined || new Set(of.map((row) => row.bytes)).size < 2) return [];
    const names = [...new Set(of.map((row) => row.name))];
    const points = (name: string, y: (row: HostsRow) => number) =>
      of.filter((row) => row.name === name).map((row) => [row.bytes, y(row)] as const);
    const title = `Median round, ${first.hosts} hosts x ${first.ranks_per_host} ranks, ` +
      formatLink(first.link_bit_s);
    const svg = linePlot({
      title,
      xLabel: "f32 bytes per rank",
      yLabel: "ms",
      xLog: true,
      yLog: true,
      xTick: formatSize,
      series: [
        ...names.map((name) => ({ name, points: points(name, (row) => row.median_ms) })),
        { name: "star's bound", points: points("tierfold", (row) => row.bound_ms) },
        { name: "ring's bound", points: points("gloo", (row) => row.bound_ms) },
      ],
    });
    return [{ file: `${key}.svg`, title, svg }];
  });
}
