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
/** This clock less the controller's, in milliseconds. */
let aheadMs = 0;
let live = false;
const roundPlot = new RoundPlot();
const lossPlot = new LossPlot();
const events = new Events();
const operator = new Operator();
const topology = new Topology(byId("topology-picture"), () => {
  if (state === undefined) return;
  showDetails(topology.choice, state);
  operator.offer(topology.choice, state);
});

function draw(next: StateDocument): void {
  // Before anything is measured.
  if (state === undefined) show(byId("content"), true);
  state = next;
  aheadMs = Date.now() - next.nowMs;
  document.title = titleOf(next);
  setText(byId("version"), next.version);
  showFigures(next);
  showTimed(next);
  operator.offer(topology.choice, next);
  roundPlot.draw(next);
  lossPlot.draw(next);
  showArrivals(next);
  showLists(next);
  events.draw(next);
}

/** Shows what grows old by itself. */
function showTimed(now: StateDocument): void {
  const upMs = Math.max(0, now.nowMs - now.startedAtMs);
  setText(byId("uptime"), `up ${duration(Math.floor(upMs / 1000) * 1000)}`);
  showWaiting(now);
  topology.draw(now);
  showDetails(topology.choice, now);
}

function titleOf({ phase, totals, ranks }: StateDocument): string {
  const lost = ranks.filter((rank) => rank.phase === "lost").length;
  const words = phase === "running" ? `round ${totals.rounds}` : phase;
  return `${lost > 0 ? `${lost} lost, ` : ""}${words} - Tierfold`;
}

const stream = new Stream(draw, (link) => {
  live = link.state === "live";
  showLink(link, state?.phase === "over");
});
byId("retry").addEventListener("click", () => stream.retryNow());
setInterval(() => {
  if (live && state !== undefined) showTimed({ ...state, nowMs: Date.now() - aheadMs });
}, 1_000);
