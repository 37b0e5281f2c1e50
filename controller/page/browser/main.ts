/**
 * The status page: follows the controller's state and shows it.
 *
 * @module
 */
/// <reference lib="dom" />
import type { StateDocument } from "../../../observe/state.ts";
import { byId, setText, show } from "./dom.ts";
import { duration } from "./format.ts";
import { showDetails } from "./details.ts";
import { Events } from "./events.ts";
import { showFigures, showWaiting } from "./figures.ts";
import { showLink } from "./link_view.ts";
import { showLists } from "./lists.ts";
import { LossPlot } from "./loss_plot.ts";
import { Operator } from "./operator.ts";
import { RoundPlot } from "./round_plot.ts";
import { showArrivals } from "./rounds.ts";
import { Stream } from "./stream.ts";
import { Topology } from "./topology.ts";

let state: StateDocument | undefined;
const lossPlot = new LossPlot();
const roundPlot = new RoundPlot();
const events = new Events();
const operator = new Operator();
const topology = new Topology(byId("topology-picture"), () => {
  if (state === undefined) return;
  showDetails(topology.choice, state);
  operator.offer(topology.choice, state);
});

function draw(next: StateDocument): void {
  const first = state === undefined;
  state = next;
  // Before anything is measured.
  if (first) show(byId("content"), true);
  document.title = titleOf(next);
  setText(byId("version"), next.version);
  setText(
    byId("uptime"),
    `up ${duration(Math.floor((next.nowMs - next.startedAtMs) / 1000) * 1000)}`,
  );
  showWaiting(next);
  showFigures(next);
  topology.draw(next);
  showDetails(topology.choice, next);
  operator.offer(topology.choice, next);
  roundPlot.draw(next);
  lossPlot.draw(next);
  showArrivals(next);
  showLists(next);
  events.draw(next);
}

function titleOf({ phase, totals, ranks }: StateDocument): string {
  const lost = ranks.filter((rank) => rank.phase === "lost").length;
  const words = phase === "running" ? `round ${totals.rounds}` : phase;
  return `${lost > 0 ? `${lost} lost, ` : ""}${words} - Tierfold`;
}

const stream = new Stream(draw, (link) => showLink(link, state?.phase === "over"));
byId("retry").addEventListener("click", () => stream.retryNow());
