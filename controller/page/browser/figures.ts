/**
 * The figures at the top, and the sentence that says what the session waits for.
 *
 * @module
 */
/// <reference lib="dom" />
import type { StateDocument } from "../../../observe/state.ts";
import { byId, setAttribute, setText, show } from "./dom.ts";
import { bytes, count, duration, number, ranksOf } from "./format.ts";
import { median, quantile, roundsPerMinute } from "./statistics.ts";

/** A round that gathers for so long is spoken of, in milliseconds. */
const SLOW_MS = 2_000;

function put(id: string, value: string, more: string): void {
  setText(byId(`${id}-value`), value);
  setText(byId(`${id}-more`), more);
}

/** Shows the figures. */
export function showFigures(state: StateDocument): void {
  const { rounds, totals, ranks, deadline } = state;
  const last = rounds.at(-1);
  const rate = roundsPerMinute(rounds);
  put(
    "f-rounds",
    number(totals.rounds),
    rate === undefined ? "since the start" : `${number(rate)} a minute`,
  );
  const times = rounds.map(({ durationMs }) => durationMs);
  put(
    "f-time",
    last === undefined ? "–" : duration(median(times)!),
    last === undefined
      ? "no round yet"
      : `median of ${number(times.length)}; 95 % within ${duration(quantile(times, 0.95)!)}`,
  );
  const of = (phase: string) => ranks.filter((rank) => rank.phase === phase).length;
  const rest = [
    [of("lost"), "lost"],
    [of("left"), "left"],
    [of("expected"), "awaited"],
  ] as const;
  const words = rest.filter(([many]) => many > 0).map(([many, word]) => `${many} ${word}`);
  put(
    "f-ranks",
    `${of("live")} of ${state.worldSize}`,
    words.length === 0 ? `on ${count(state.hosts.length, "host")}` : words.join(", "),
  );
  setAttribute(byId("f-ranks"), "data-level", of("lost") > 0 ? "error" : undefined);
  put(
    "f-mass",
    last === undefined ? "–" : number(last.mass),
    last === undefined ? "no round yet" : `of ${count(last.ranks, "rank")} in round ${last.round}`,
  );
  put(
    "f-bytes",
    bytes(totals.bytesIn),
    last === undefined
      ? "nothing out yet"
      : `${bytes(totals.bytesOut)} out; ${bytes(last.bytesIn)} in a round`,
  );
  put(
    "f-kernel",
    state.kernel,
    `waits ${duration(deadline.nowMs)} for the late${deadline.adaptive ? ", adaptive" : ""}`,
  );
}

/** Says what the session waits for, if it does for long enough to be of interest. */
export function showWaiting(state: StateDocument): void {
  const { gathering, phase, ranks, hosts, nowMs } = state;
  let text = "";
  let sinceMs: number | undefined;
  const missing = ranks.filter((rank) => rank.phase === "expected").map(({ rank }) => rank);
  if (phase === "over") text = "The session is over.";
  else if (phase === "waiting" && missing.length > 0) {
    const verb = missing.length === 1 ? "has" : "have";
    text = `Waiting for relays: ${ranksOf(missing)} ${verb} none yet.`;
    sinceMs = state.startedAtMs;
  } else if (gathering.startedAtMs !== null && nowMs - gathering.startedAtMs > SLOW_MS) {
    const late = hosts.filter(({ key }) => gathering.awaited.includes(key));
    const names = late.map(({ name, ranks }) => `${name} (${ranksOf(ranks)})`);
    if (names.length > 0) {
      text = `Round ${gathering.round} waits for ${names.join(", ")}.`;
      sinceMs = gathering.startedAtMs;
    }
  }
  show(byId("waiting"), text !== "");
  setText(byId("waiting-text"), text);
  setText(byId("waiting-since"), sinceMs === undefined ? "" : duration(round(nowMs - sinceMs)));
}

function round(ms: number): number {
  return Math.max(0, Math.round(ms / 1000) * 1000);
}
