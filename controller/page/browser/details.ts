/**
 * What is known of the part that is chosen in the picture.
 *
 * @module
 */
/// <reference lib="dom" />
import type { HostView, RankView, StateDocument } from "../../../observe/state.ts";
import { byId, html, reconcile, setText } from "./dom.ts";
import { bytes, clock, count, duration, number, ranges } from "./format.ts";
import { type Choice, hostState, PHASES } from "./topology.ts";
import { branches } from "./tree.ts";

/** A name and what it has. */
type Row = readonly [name: string, value: string];

function controllerRows(state: StateDocument): Row[] {
  const { deadline } = state;
  return [
    ["State", { waiting: "waiting for relays", running: "running", over: "over" }[state.phase]],
    ["Relays connect to", state.listen ?? "not listening yet"],
    ["World size", count(state.worldSize, "rank")],
    ["Kernel", state.kernel],
    [
      "Waits for the late",
      deadline.adaptive
        ? `${duration(deadline.nowMs)}, adaptive from ${duration(deadline.floorMs)} to ` +
          duration(deadline.capMs)
        : duration(deadline.nowMs),
    ],
    ["Largest frame", bytes(state.frameCeilingBytes)],
    ["Refused connections", number(state.totals.refusals)],
    ["Ranks lost, come back", `${state.totals.deaths}, ${state.totals.returns}`],
    ["Started", `${clock(state.startedAtMs)}, ${duration(state.nowMs - state.startedAtMs)} ago`],
    ["Session", state.session.slice(0, 8)],
  ];
}

function hostRows(host: HostView, state: StateDocument): Row[] {
  const branch = branches(state).find((one) => one.host?.key === host.key)!;
  const arrival = state.rounds.at(-1)?.arrivals.find(({ key }) => key === host.key);
  const order = arrival?.rankArrivals?.map(({ rank, arrivedMs }) =>
    `${rank} +${duration(arrivedMs)}`
  );
  return [
    ["State", hostState(branch, state)],
    ["Relay", host.peer],
    ["Carries ranks", host.ranks.length === 0 ? "none" : ranges(host.ranks)],
    ["Frames", number(host.frames)],
    ["In, out", `${bytes(host.bytesIn)}, ${bytes(host.bytesOut)}`],
    ["Mass of its last frame", host.mass === null ? "none yet" : number(host.mass)],
    ...(order === undefined ? [] : [["Its ranks' frames", order.join(", ")] as const]),
    [host.connected ? "Connected" : "Gone", `since ${clock(host.sinceAtMs)}`],
  ];
}

function rankRows(rank: RankView): Row[] {
  const rows: Row[] = [
    ["State", `${PHASES[rank.phase]} since ${clock(rank.sinceAtMs)}`],
    ["Host", rank.host ?? "none yet"],
    ["Came back", count(rank.returns, "time")],
    ["Given up as late", count(rank.timesLate, "time")],
  ];
  if (rank.reason !== null) rows.splice(1, 0, ["Why", rank.reason]);
  if (rank.loss !== null) rows.push(["Loss", number(rank.loss)]);
  return rows;
}

function detailsOf(choice: Choice, state: StateDocument): { title: string; rows: Row[] } {
  const [kind, number] = choice.split(" ");
  if (kind === "host") {
    const host = state.hosts.find(({ key }) => String(key) === number);
    if (host !== undefined) return { title: `Host ${host.name}`, rows: hostRows(host, state) };
  }
  if (kind === "rank") {
    const rank = state.ranks[Number(number)];
    if (rank !== undefined) return { title: `Rank ${rank.rank}`, rows: rankRows(rank) };
  }
  if (kind === "unclaimed") {
    const ranks = branches(state).at(-1)?.ranks.map(({ rank }) => rank) ?? [];
    return { title: "Unclaimed ranks", rows: [["Ranks without a relay", ranges(ranks)]] };
  }
  return { title: "Controller", rows: controllerRows(state) };
}

/** Shows it. */
export function showDetails(choice: Choice, state: StateDocument): void {
  const { title, rows } = detailsOf(choice, state);
  setText(byId("details-title"), title);
  reconcile(
    byId("details-list"),
    rows,
    ([name]) => name,
    ([name]) => html("div", {}, html("dt", {}, name), html("dd")),
    (row, [, value]) => setText(row.lastElementChild!, value),
  );
}
