/**
 * A relay as those see it who watch: from what it tells to the state document.
 *
 * @module
 */
import { ArrivalLog } from "../../fold/arrivals.ts";
import type { RoundDeadline } from "../../fold/deadline.ts";
import { Recent } from "../../observe/recent.ts";
import {
  RELAY_STATE_LIMITS,
  type RelayDocument,
  type RelayRoundView,
} from "../../observe/relay_state.ts";
import { Roster } from "../../observe/roster.ts";
import type { EventKind, EventView } from "../../observe/state.ts";
import { ascending, short, theRanks } from "../../observe/words.ts";
import { LENGTH_BYTES } from "../../wire/length.ts";
import { RECORD_HEADER_BYTES } from "../../wire/mux.ts";
import type { FrameHeader } from "../../wire/round_frame.ts";
import type { RelayObserver, ShippedRound } from "../observer.ts";

/** What the view must know of the relay. */
export interface RelayViewOptions {
  readonly version: string;
  readonly host: string;
  /** The ranks of this host, ascending. */
  readonly ranks: readonly number[];
  readonly worldSize: number;
  readonly kernel: string;
  readonly deadline: RoundDeadline;
  /** Milliseconds since 1970, never going back. */
  readonly clock: () => number;
}

/** What others want to hear of a view at once. */
export interface RelayViewListener {
  /** A round closed. */
  round?(round: RelayRoundView): void;
  /** Something happened. */
  event?(event: EventView): void;
}

/** A late rank, until it is back. */
interface Missed {
  readonly round: number;
  /** When the deadline was over. */
  readonly atMs: number;
}

/** Keeps what the state document shows, bounded. */
export class RelayView implements RelayObserver {
  readonly #options: RelayViewOptions;
  readonly #startedAtMs: number;
  readonly #listeners: RelayViewListener[] = [];
  readonly #roster: Roster;
  readonly #rounds = new Recent<RelayRoundView>(RELAY_STATE_LIMITS.rounds);
  readonly #events = new Recent<EventView>(RELAY_STATE_LIMITS.events);
  readonly #arrivals = new ArrivalLog();
  readonly #late = new Set<number>();
  readonly #missed = new Map<number, Missed>();
  #shipped: (ShippedRound & { readonly atMs: number }) | undefined;
  #round = 0;
  #counts = {
    bytesIn: 0,
    bytesOut: 0,
    bytesUp: 0,
    bytesDown: 0,
    refusals: 0,
    nonfiniteFrames: 0,
    nonfiniteValues: 0,
  };
  #listen: string | null = null;
  #controller: string | null = null;
  #over = false;

  constructor(options: RelayViewOptions) {
    this.#options = options;
    this.#startedAtMs = options.clock();
    this.#roster = new Roster(options.ranks, this.#startedAtMs);
  }

  /** Tells `listener` of rounds and events from here on. */
  listen(listener: RelayViewListener): void {
    this.#listeners.push(listener);
  }

  listening(address: string): void {
    this.#listen = address;
    this.#event("session", "info", [], `accepting ranks on ${address}`);
  }

  connected(controller: string): void {
    this.#controller = controller;
    this.#event("session", "info", [], `connected to the controller at ${controller}`);
  }

  disconnected(reason: string): void {
    this.#controller = null;
    this.#event("session", "warning", [], `the controller is lost: ${reason}`);
  }

  rankJoined(rank: number, peer: string): void {
    const now = this.#options.clock();
    const missed = this.#missed.get(rank);
    this.#missed.delete(rank);
    this.#roster.carried(this.#options.host, [rank], now);
    const text = missed === undefined
      ? `rank ${rank} joined from ${peer}`
      : `rank ${rank}, given up in round ${missed.round}, is back at ${peer} ` +
        `${Math.round(now - missed.atMs)} ms after that round's deadline`;
    this.#event(missed === undefined ? "rank_joined" : "rank_returned", "info", [rank], text);
  }

  frameBegins(rank: number): void {
    this.#arrivals.begins(rank, this.#options.clock());
  }

  delivered(rank: number, frameBytes: number): void {
    this.#arrivals.arrives(rank, this.#options.clock());
    this.#counts.bytesIn += frameBytes + LENGTH_BYTES;
  }

  replaced(rank: number, values: number): void {
    this.#counts.nonfiniteValues += values;
    const text = `rank ${rank} sent ${values} values that are NaN or infinite: they count as 0`;
    this.#event("nonfinite", "warning", [rank], text);
  }

  rankGone(rank: number, lost: boolean, reason: string): void {
    if (this.#arrivals.arriving(rank)) this.#arrivals.forget(rank);
    this.#roster.gone([rank], lost ? "lost" : "left", reason, this.#options.clock());
    const text = lost ? `rank ${rank} is out: ${reason}` : `rank ${rank} left`;
    this.#event(lost ? "rank_lost" : "rank_left", lost ? "warning" : "info", [rank], text);
  }

  refused(peer: string, rank: number | undefined, reason: string, nonfinite: boolean): void {
    this.#counts.refusals++;
    if (nonfinite) this.#counts.nonfiniteFrames++;
    const who = rank === undefined ? `a connection from ${peer}` : `rank ${rank} at ${peer}`;
    const kind = nonfinite ? "nonfinite" : "refused";
    this.#event(
      kind,
      "warning",
      rank === undefined ? [] : [rank],
      `${who} was refused: ${reason}`,
    );
  }

  late(ranks: readonly number[], deadlineMs: number): void {
    const atMs = this.#options.clock();
    for (const rank of ranks) {
      this.#late.add(rank);
      this.#missed.set(rank, { round: this.#round, atMs });
    }
    this.#roster.late(ranks);
    const text = `${theRanks(ranks)} had not delivered in round ${this.#round} after ` +
      `${deadlineMs} ms and may no longer come in`;
    this.#event("rank_late", "warning", ranks, text);
  }

  shipped(round: ShippedRound): void {
    this.#counts.bytesUp += round.header.length + RECORD_HEADER_BYTES;
    // Sent once more, to a controller that was lost meanwhile: its frames came before.
    if (this.#shipped?.round === round.round) return;
    this.#shipped = { ...round, atMs: this.#options.clock() };
    this.#arrivals.close();
  }

  closed(result: FrameHeader, receivers: number): void {
    const shipped = this.#shipped;
    this.#counts.bytesDown += result.length + RECORD_HEADER_BYTES;
    this.#counts.bytesOut += (result.length + LENGTH_BYTES) * receivers;
    if (shipped === undefined) return;
    const { round, header, timed } = shipped;
    const { clock } = this.#options;
    const startedAtMs = performance.timeOrigin + timed.startedAtMs;
    const view: RelayRoundView = {
      round,
      kind: header.kind,
      startedAtMs: short(startedAtMs),
      gatherMs: short(shipped.atMs - startedAtMs),
      durationMs: short(clock() - startedAtMs),
      mass: header.weight,
      resultMass: result.weight,
      arrivals: timed.frames.map(({ member: rank, arrivedMs }) => ({
        rank,
        arrivedMs: short(arrivedMs),
      })),
      late: ascending(this.#late),
      lagMs: short(timed.lagMs),
      lagOfMedianMs: short(timed.lagOfMedianMs),
      deadlineMs: short(timed.deadlineMs),
    };
    this.#shipped = undefined;
    this.#late.clear();
    this.#round = round + 1;
    this.#rounds.add(view);
    for (const listener of this.#listeners) listener.round?.(view);
  }

  ended(error?: unknown): void {
    this.#over = true;
    const text = error instanceof Error ? error.message : String(error);
    if (error === undefined) this.#event("session", "info", [], "every rank has left");
    else this.#event("session", "error", [], `the session ended: ${text}`);
  }

  /** Why ranks cannot train here, a sentence each; none when they can. */
  get notReady(): string[] {
    if (this.#over) return ["the session is over"];
    const reasons: string[] = [];
    if (this.#listen === null) reasons.push("it does not accept ranks yet");
    if (this.#controller === null) reasons.push("no controller has taken it in");
    return reasons;
  }

  /** Everything at once. */
  document(): RelayDocument {
    const options = this.#options;
    const { notReady } = this;
    const { adaptive, floorMs, capMs } = options.deadline;
    const { startedAtMs, delivered } = this.#arrivals;
    return {
      format: 1,
      role: "relay",
      version: options.version,
      host: options.host,
      startedAtMs: short(this.#startedAtMs),
      nowMs: short(options.clock()),
      listen: this.#listen,
      controller: this.#controller,
      worldSize: options.worldSize,
      phase: this.#over
        ? "over"
        : this.#roster.those("expected").length > 0
        ? "waiting"
        : "running",
      ready: notReady.length === 0,
      notReady,
      kernel: options.kernel,
      deadline: { adaptive, nowMs: short(options.deadline.after("model")), floorMs, capMs },
      totals: { rounds: this.#rounds.count, ...this.#counts, ...this.#roster.totals },
      ranks: this.#roster.all().map((entry) => ({ ...entry, sinceAtMs: short(entry.sinceAtMs) })),
      gathering: {
        round: this.#round,
        startedAtMs: startedAtMs === undefined ? null : short(startedAtMs),
        delivered,
        sent: this.#shipped !== undefined,
      },
      rounds: this.#rounds.all(),
      events: this.#events.all(),
    };
  }

  #event(
    kind: EventKind,
    level: EventView["level"],
    ranks: readonly number[],
    text: string,
  ): void {
    const event: EventView = {
      id: this.#events.count,
      atMs: short(this.#options.clock()),
      kind,
      level,
      round: this.#round,
      host: this.#options.host,
      ranks: ascending(ranks),
      text,
    };
    this.#events.add(event);
    for (const listener of this.#listeners) listener.event?.(event);
  }
}
