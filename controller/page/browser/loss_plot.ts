/**
 * The plot of the losses that ranks report.
 *
 * @module
 */
/// <reference lib="dom" />
import type { LossView, StateDocument } from "../../../observe/state.ts";
import { byId, show } from "./dom.ts";
import { count, number } from "./format.ts";
import { type Curves, LivePlot } from "./plot.ts";
import { median } from "./statistics.ts";

/** More ranks than this are shown as their lowest, median and highest loss. */
const MAX_CURVES = 6;

/** One curve a rank, or three for all of them together. */
export function lossCurves(losses: readonly LossView[]): Curves {
  const byRank = Map.groupBy(losses, ({ rank }) => rank);
  const ranks = [...byRank.keys()].sort((a, b) => a - b);
  const x = [...new Set(losses.map(({ step }) => step))].sort((a, b) => a - b);
  if (ranks.length <= MAX_CURVES) {
    const bySteps = ranks.map((rank) => new Map(byRank.get(rank)!.map((p) => [p.step, p.loss])));
    return {
      curves: ranks.map((rank, i) => ({ label: `rank ${rank}`, color: `--series-${i + 1}` })),
      x,
      ys: bySteps.map((map) => x.map((step) => map.get(step) ?? null)),
    };
  }
  const byStep = Map.groupBy(losses, ({ step }) => step);
  const at = x.map((step) => byStep.get(step)!.map(({ loss }) => loss));
  return {
    curves: [
      { label: "median of all ranks", color: "--series-1" },
      { label: "lowest", color: "--series-3", dash: [4, 4] },
      { label: "highest", color: "--series-2", dash: [4, 4] },
    ],
    x,
    ys: [
      at.map((values) => median(values)!),
      at.map((values) => Math.min(...values)),
      at.map((values) => Math.max(...values)),
    ],
  };
}

function summary({ curves, ys }: Curves): string {
  const ends = curves.map(({ label }, i) => {
    const last = ys[i]!.findLast((value) => value !== null);
    return `${label} ${last === undefined || last === null ? "unknown" : number(last)}`;
  });
  return `Loss, ${count(curves.length, "curve")}; last values: ${ends.join(", ")}`;
}

/** The plot, made with the first loss. */
export class LossPlot {
  #plot: LivePlot | undefined;
  #drawn = "";

  /** Draws a state. */
  draw({ session, losses }: StateDocument): void {
    show(byId("loss"), losses.length > 0);
    const last = losses.at(-1);
    if (last === undefined) return;
    const drawn = `${session} ${losses.length} ${last.atMs} ${last.rank}`;
    if (drawn === this.#drawn) return;
    this.#drawn = drawn;
    this.#plot ??= new LivePlot(byId("loss-plot"), { x: "step", value: number, summary });
    this.#plot.draw(lossCurves(losses));
  }
}
