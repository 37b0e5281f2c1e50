/**
 * The last rounds with the order of arrival, and who keeps the others waiting.
 *
 * @module
 */
/// <reference lib="dom" />
import type { Arrival, RoundView, StateDocument } from "../../../observe/state.ts";
import { byId, html, reconcile, setAttribute, setText, show, svg } from "./dom.ts";
import { bytes, duration, number, ranges } from "./format.ts";
import { ceiling, type Pace, paces } from "./statistics.ts";

/** Rounds in the table. */
const SHOWN = 10;
/** Hosts whose names are told; of more, the first and the last. */
const NAMED = 4;
/** Hosts with a lane in a round's strip. */
const LANES = 8;

const STRIP = { width: 120, lane: 5, gap: 3 };

/** A row of a table that may be shown as blocks: roles say what the tags no longer do. */
function row(...cells: HTMLElement[]): HTMLElement {
  return html("tr", { role: "row" }, ...cells);
}

function cell(name: string, attributes: Record<string, string> = {}): HTMLElement {
  return html("td", { role: "cell", "data-label": name, ...attributes });
}

/** Who came when, in words. */
export function orderOf(arrivals: readonly Arrival[]): string {
  const [first] = arrivals;
  const last = arrivals.at(-1);
  if (first === undefined || last === undefined) return "nobody";
  if (arrivals.length === 1) return `${first.host} alone`;
  const behind = (one: Arrival) => `${one.host} +${duration(one.arrivedMs - first.arrivedMs)}`;
  if (arrivals.length > NAMED) return `${first.host} first, ${behind(last)} last`;
  return [first.host, ...arrivals.slice(1).map(behind)].join(", ");
}

function strip(round: RoundView, scaleMs: number): SVGElement {
  const lanes = round.arrivals.slice(-LANES);
  const height = lanes.length * (STRIP.lane + STRIP.gap) - STRIP.gap;
  const x = (ms: number) => Math.max(0, Math.min(1, ms / scaleMs)) * (STRIP.width - 3);
  return svg(
    "svg",
    {
      class: "strip",
      width: STRIP.width,
      height: Math.max(height, STRIP.lane),
      "aria-hidden": "true",
    },
    ...lanes.map((arrival, lane) => {
      const from = x(arrival.beganMs);
      const y = lane * (STRIP.lane + STRIP.gap);
      return svg(
        "g",
        { class: lane > 0 && lane === lanes.length - 1 ? "last" : undefined },
        svg("rect", { class: "wait", y: y + STRIP.lane / 2 - 0.5, width: from, height: 1 }),
        svg("rect", {
          ...{ x: from, y, height: STRIP.lane, rx: 1.5 },
          width: 3 + x(arrival.arrivedMs) - from,
        }),
      );
    }),
  );
}

function roundRow(round: RoundView): HTMLElement {
  const order = cell("Arrival", { class: "order whole" });
  const cells = [
    html("th", { role: "rowheader", scope: "row", "data-label": "Round" }, String(round.round)),
    cell("Kind"),
    cell("Time", { class: "number" }),
    cell("Mass", { class: "number" }),
    cell("Ranks", { class: "number" }),
    cell("In, out", { class: "number whole" }),
    order,
  ];
  const kinds = { model: "weights", control: "sum" };
  setText(cells[1]!, kinds[round.kind]);
  setText(cells[2]!, duration(round.durationMs));
  setText(cells[3]!, number(round.mass));
  setText(cells[4]!, number(round.ranks));
  setText(cells[5]!, `${bytes(round.bytesIn)}, ${bytes(round.bytesOut)}`);
  order.append(html("span", { class: "lanes" }), html("span", {}, orderOf(round.arrivals)));
  if (round.late.length > 0) {
    order.append(html("span", { class: "tag warning" }, `late: ${ranges(round.late)}`));
  }
  return row(...cells);
}

function showRounds({ rounds }: StateDocument): void {
  const shown = rounds.slice(-SHOWN).reverse();
  const scaleMs = ceiling(
    shown.flatMap(({ arrivals }) => arrivals.map(({ arrivedMs }) => arrivedMs)),
  );
  show(byId("arrivals-table"), shown.length > 0);
  show(byId("arrivals-empty"), shown.length === 0);
  reconcile(
    byId("arrivals-rows"),
    shown,
    ({ round }) => String(round),
    roundRow,
    (element, round) => {
      const scale = String(scaleMs);
      const lanes = element.querySelector<HTMLElement>(".lanes")!;
      if (lanes.dataset["scale"] === scale) return;
      lanes.dataset["scale"] = scale;
      lanes.replaceChildren(strip(round, scaleMs));
    },
  );
}

function paceRow(): HTMLElement {
  const bar = svg(
    "svg",
    { class: "bar", width: 80, height: 8, "aria-hidden": "true" },
    svg("rect", { height: 8, rx: 2 }),
  );
  return row(
    html("th", { role: "rowheader", scope: "row", "data-label": "Host" }),
    html(
      "td",
      { role: "cell", class: "whole", "data-label": "Behind the first, median" },
      bar,
      html("span"),
    ),
    cell("Last of all", { class: "number whole" }),
    cell("Late ranks", { class: "number" }),
    cell("Frames", { class: "number" }),
    cell("In", { class: "number" }),
  );
}

function showPaces(state: StateDocument): void {
  const all = paces(state);
  show(byId("paces"), all.length > 0);
  const slowest = Math.max(0, ...all.map(({ behindMs }) => behindMs ?? 0));
  const busiest = Math.max(0, ...all.map(({ last }) => last));
  reconcile(
    byId("paces-rows"),
    all,
    ({ host }) => String(host.key),
    paceRow,
    (element, pace: Pace) => {
      const [name, behind, last, late, frames, inward] = [...element.children];
      setText(name!, pace.host.name);
      const width = slowest === 0 ? 0 : 80 * (pace.behindMs ?? 0) / slowest;
      setAttribute(behind!.querySelector("rect")!, "width", width);
      setText(
        behind!.lastElementChild!,
        pace.behindMs === undefined ? "–" : duration(pace.behindMs),
      );
      setText(last!, `${pace.last} of ${pace.rounds}`);
      setAttribute(last!, "data-most", pace.last === busiest && busiest > 0);
      setText(late!, number(pace.late));
      setText(frames!, number(pace.host.frames));
      setText(inward!, bytes(pace.host.bytesIn));
    },
  );
}

/** Shows both tables. */
export function showArrivals(state: StateDocument): void {
  showRounds(state);
  showPaces(state);
}
