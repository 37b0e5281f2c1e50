/**
 * The plot of how long rounds take.
 *
 * @module
 */
/// <reference lib="dom" />
import type { StateDocument } from "../../../observe/state.ts";
import { byId, show } from "./dom.ts";
import { count, duration } from "./format.ts";
import { type Curves, LivePlot } from "./plot.ts";
import { median } from "./statistics.ts";

const CURVES = [
  { label: "round", color: "--series-1", fill: true },
  { label: "last host behind the first", color: "--series-2", dash: [6, 4] },
] as const;

function summary({ x, ys }: Curves): string {
  const times = ys[0]!.filter((ms) => ms !== null);
  return `The last ${count(x.length, "round")}: median ${duration(median(times)!)}, ` +
    `longest ${duration(Math.max(...times))}`;
}

/** The plot, made with the first round. */
export class RoundPlot {
  #plot: LivePlot | undefined;
  #drawn = "";

  /** Draws a state. */
  draw({ session, rounds }: StateDocument): void {
    show(byId("rounds-empty"), rounds.length === 0);
    show(byId("rounds-plot"), rounds.length > 0);
    const last = rounds.at(-1);
    if (last === undefined) return;
    const drawn = `${session} ${last.round}`;
    if (drawn === this.#drawn) return;
    this.#drawn = drawn;
    this.#plot ??= new LivePlot(byId("rounds-plot"), { x: "round", value: duration, summary });
    this.#plot.draw({
      curves: CURVES,
      x: rounds.map(({ round }) => round),
      ys: [rounds.map(({ durationMs }) => durationMs), rounds.map(({ lagMs }) => lagMs)],
    });
  }
}
