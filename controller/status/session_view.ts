/**
 * A session as those see it who watch: from what the controller tells to the state document.
 *
 * @module
 */
import { formatRanks } from "../../cli/values.ts";
import { ArrivalLog } from "../../fold/arrivals.ts";
import type { RoundDeadline } from "../../fold/deadline.ts";
import { Recent } from "../../observe/recent.ts";
import {
  type DeltaPeerView,
  type DurabilityView,
  type EventKind,
  type EventView,
  type GrowingList,
  type HostView,
  type PassView,
  type RoundView,
  STATE_LIMITS,
  type StateDocument,
} from "../../observe/state.ts";
import type { SessionObserver, WatchedHost, WatchedRound } from "../observer.ts";
import { LossBoard } from "./loss_board.ts";
import { Roster } from "../../observe/roster.ts";
import { ascending, short, theRanks } from "../../observe/words.ts";

/** What the view must know of the session, and where it finds what it is not told. */
export interface SessionViewOptions {
  readonly session: string;
  readonly version: string;
  readonly worldSize: number;
  /** The fewest ranks with which a round closes. */
  readonly minRanks: number;
  readonly kernel: string;
  readonly frameCeilingBytes: number;
  readonly deadline: RoundDeadline;
  /** Milliseconds since 1970, never going back. */
  readonly clock: () => number;
  readonly passes: () => readonly PassView[] | null;
  readonly deltas: () => readonly DeltaPeerView[] | null;
  readonly durability: () => DurabilityView | null;
}

/** What others want to hear of a view at once. */
export interface ViewListener {
  /** A round closed. */
  round?(round: RoundView): void;
  /** Something happened. */
  event?(event: EventView): void;
}

type Mutable<T> = { -readonly [Key in keyof T]: T[Key] };
type Host = Omit<Mutable<HostView>, "ranks" | "round"> & { ranks: Set<number> };
interface Accepted {
  readonly ranks: readonly number[];
  readonly bytes: number;
  readonly mass: number;
}

/** Keeps what the state document shows, bounded. */
export class SessionView implements SessionObserver {
  /** Losses that ranks reported. */
  readonly losses: LossBoard;
  readonly #options: SessionViewOptions;
  readonly #startedAtMs: number;
  readonly #listeners: ViewListener[] = [];
  readonly #roster: Roster;
  readonly #hosts = new Map<number, Host>();
  readonly #rounds = new Recent<RoundView>(STATE_LIMITS.rounds);
  readonly #events = new Recent<EventView>(STATE_LIMITS.events);
  readonly #arrivals = new ArrivalLog();
  /** Frames of the round that is gathering, by host. */
  readonly #accepted = new Map<number, Accepted>();
  /** Ranks given up in the round that is gathering. */
  readonly #late = new Set<number>();
  /** When ranks were given up, until they are back. */
  readonly #missed = new Map<number, number>();
  /** Ranks that the operator declared dead and whose relays have not said yet that they are gone. */
  readonly #declaredDead = new Set<number>();
  #round = 0;
  #bytesIn = 0;
  #bytesOut = 0;
  #refusals = 0;
  #listen: string | null = null;
  #over = false;
  #revision = 0;

  constructor(options: SessionViewOptions) {
    this.#options = options;
    this.#startedAtMs = options.clock();
    this.losses = new LossBoard(options.worldSize);
    this.#roster = new Roster(Array(options.worldSize).keys(), this.#startedAtMs);
  }

  /** Grows with everything that the view is told. */
  get revision(): number {
    return this.#revision + this.losses.recent.count;
  }

  /** The lists that only grow. */
  get lists(): { readonly [List in GrowingList]: Recent<StateDocument[List][number]> } {
    return { rounds: this.#rounds, losses: this.losses.recent, events: this.#events };
  }

  /** Tells `listener` of rounds and events from here on. */
  listen(listener: ViewListener): void {
    this.#listeners.push(listener);
  }

  listening(address: string): void {
    this.#listen = address;
    this.#event("session", "info", [], null, `accepting relays on ${address}`);
  }

  hostJoined({ key, name, ...host }: WatchedHost, peer: string): void {
    const ranks = ascending(host.ranks);
    const now = this.#options.clock();
    const before = this.#hosts.get(key);
    this.#hosts.set(key, {
      frames: 0,
      bytesIn: 0,
      bytesOut: 0,
      mass: null,
      ...before,
      key,
      name,
      peer,
      connected: true,
      sinceAtMs: now,
      ranks: new Set(ranks),
    });
    this.#roster.carried(name, ranks, now);
    this.#event(
      "host_joined",
      "info",
      ranks,
      name,
      `host ${name} at ${peer} carries ranks ${formatRanks(ranks)}`,
    );
  }

  ranksReturned({ key, name }: WatchedHost, ranks: readonly number[]): void {
    for (const rank of ranks) this.#hosts.get(key)?.ranks.add(rank);
    const now = this.#options.clock();
    this.#roster.carried(name, ranks, now);
    const missed = ranks.flatMap((rank) => this.#missed.get(rank) ?? []);
    for (const rank of ranks) this.#missed.delete(rank);
    const after = missed.length === 0
      ? ""
      : `, ${Math.round(now - Math.min(...missed))} ms after missing a deadline`;
    const text = `${theRanks(ranks)} came back to host ${name}${after}`;
    this.#event("rank_returned", "info", ranks, name, text);
  }

  frameBegins({ key }: WatchedHost): void {
    this.#arrivals.begins(key, this.#options.clock());
    this.#revision++;
  }

  delivered({ key, ranks }: WatchedHost, bytes: number, mass: number): void {
    this.#arrivals.arrives(key, this.#options.clock());
    this.#accepted.set(key, { ranks: ascending(ranks), bytes, mass });
    const host = this.#hosts.get(key);
    if (host !== undefined) {
      host.frames++;
      host.bytesIn += bytes;
      host.mass = mass;
    }
    this.#bytesIn += bytes;
    this.#revision++;
  }

  rankLeft({ key, name }: WatchedHost, rank: number): void {
    this.#hosts.get(key)?.ranks.delete(rank);
    // The relay says no more than that; whoever was given up before did not leave.
    const declared = this.#declaredDead.delete(rank);
    const late = declared || this.#late.has(rank);
    const reason = declared
      ? "the operator declared it dead"
      : late
      ? `it was too late in round ${this.#round}`
      : "its connection to its relay was closed";
    this.#roster.gone([rank], late ? "lost" : "left", reason, this.#options.clock());
    const text = `rank ${rank} of host ${name} is gone: ${reason}`;
    this.#event(late ? "rank_lost" : "rank_left", late ? "warning" : "info", [rank], name, text);
  }

  hostLeft({ key, name }: WatchedHost, lost: readonly number[], reason: string): void {
    const host = this.#hosts.get(key);
    if (host !== undefined) {
      host.connected = false;
      host.ranks.clear();
      host.sinceAtMs = this.#options.clock();
    }
    // Its frame, when it is whole, stays in the round.
    if (this.#arrivals.arriving(key)) this.#arrivals.forget(key);
    this.#roster.gone(lost, "lost", reason, this.#options.clock());
    if (lost.length === 0) this.#event("host_done", "info", [], name, `host ${name} is done`);
    else {
      const text = `host ${name} is out with ${theRanks(lost)}: ${reason}`;
      this.#event("host_lost", "warning", lost, name, text);
    }
  }

  neverCame(ranks: readonly number[], reason: string): void {
    this.#roster.gone(ranks, "lost", reason, this.#options.clock());
    this.#event("rank_lost", "warning", ranks, null, `${theRanks(ranks)} never came: ${reason}`);
  }

  refused(peer: string, host: WatchedHost | undefined, reason: string): void {
    this.#refusals++;
    const who = host === undefined ? `a connection from ${peer}` : `host ${host.name} at ${peer}`;
    this.#event("refused", "warning", [], host?.name ?? null, `${who} was refused: ${reason}`);
  }

  late({ name, ...host }: WatchedHost, deadlineMs: number): void {
    const ranks = ascending(host.ranks);
    const reason = `host ${name} had not delivered in round ${this.#round} after ${deadlineMs} ms`;
    const now = this.#options.clock();
    for (const rank of ranks) {
      this.#late.add(rank);
      this.#missed.set(rank, now);
    }
    this.#roster.late(ranks);
    const text = `${theRanks(ranks)} may no longer come in: ${reason}`;
    this.#event("rank_late", "warning", ranks, name, text);
  }

  closed(closed: WatchedRound): void {
    const { round, kind, mass, receivers, bytes, deadlineMs } = closed;
    const now = this.#options.clock();
    for (const key of this.#accepted.keys()) {
      if (!closed.hosts.includes(key)) this.#arrivals.forget(key);
    }
    const { startedAtMs, frames, lagMs, lagOfMedianMs } = this.#arrivals.close();
    const arrivals = frames.map(({ member: key, beganMs, arrivedMs }) => ({
      key,
      host: this.#hosts.get(key)?.name ?? `the host of rank ${key}`,
      ...this.#accepted.get(key)!,
      beganMs: short(beganMs),
      arrivedMs: short(arrivedMs),
      rankArrivals: null,
    }));
    for (const key of receivers) {
      const host = this.#hosts.get(key);
      if (host !== undefined) host.bytesOut += bytes;
    }
    const view: RoundView = {
      round,
      kind,
      startedAtMs: short(startedAtMs),
      durationMs: short(now - startedAtMs),
      mass,
      arrivals,
      ranks: arrivals.reduce((sum, { ranks }) => sum + ranks.length, 0),
      late: ascending(this.#late),
      lagMs: short(lagMs),
      lagOfMedianMs: short(lagOfMedianMs),
      deadlineMs: short(deadlineMs),
      bytesIn: arrivals.reduce((sum, { bytes }) => sum + bytes, 0),
      bytesOut: bytes * receivers.length,
    };
    this.#accepted.clear();
    this.#late.clear();
    this.#round = round + 1;
    this.#bytesOut += view.bytesOut;
    this.#rounds.add(view);
    this.#revision++;
    for (const listener of this.#listeners) listener.round?.(view);
  }

  ended(error?: unknown): void {
    this.#over = true;
    const text = error instanceof Error ? error.message : String(error);
    if (error === undefined) this.#event("session", "info", [], null, "every rank has left");
    else this.#event("session", "error", [], null, `the session ended: ${text}`);
  }

  /** The operator declared a rank dead: its relay is told to go on without it. */
  declaredDead(rank: number): void {
    this.#declaredDead.add(rank);
    this.#event("rank_late", "warning", [rank], null, `the operator declared rank ${rank} dead`);
  }

  /** Takes down what happened beside the rounds. */
  note(
    kind: "session" | "checkpoint" | "pass" | "delta",
    level: EventView["level"],
    text: string,
  ): void {
    this.#event(kind, level, [], null, text);
  }

  /** Why rounds cannot run, a sentence each; none when they can. */
  get notReady(): string[] {
    if (this.#over) return ["the session is over"];
    const expected = this.#roster.those("expected");
    const live = this.#roster.those("live");
    const { minRanks, worldSize } = this.#options;
    const reasons: string[] = [];
    if (this.#listen === null) reasons.push("it does not accept relays yet");
    if (worldSize === 0) return reasons;
    if (expected.length > 0) {
      reasons.push(`${theRanks(expected)} ${expected.length === 1 ? "has" : "have"} no relay yet`);
    } else if (live.length < minRanks) {
      const there = `${live.length} ${live.length === 1 ? "rank is" : "ranks are"} left`;
      reasons.push(`${there}, a round closes with ${minRanks} at least`);
    }
    return reasons;
  }

  /** Everything at once. */
  document(): StateDocument {
    const [rounds, losses, events] = [this.#rounds, this.losses.recent, this.#events];
    return { ...this.fields(), rounds: rounds.all(), losses: losses.all(), events: events.all() };
  }

  /** Everything but the lists that grow. */
  fields(): Omit<StateDocument, GrowingList> {
    const options = this.#options;
    const { notReady } = this;
    const waiting = this.#roster.those("expected").length > 0;
    return {
      format: 1,
      role: "controller",
      version: options.version,
      session: options.session,
      startedAtMs: short(this.#startedAtMs),
      nowMs: short(options.clock()),
      listen: this.#listen,
      worldSize: options.worldSize,
      phase: this.#over ? "over" : waiting ? "waiting" : "running",
      ready: notReady.length === 0,
      notReady,
      kernel: options.kernel,
      frameCeilingBytes: options.frameCeilingBytes,
      deadline: this.#deadline(),
      totals: {
        rounds: this.#rounds.count,
        bytesIn: this.#bytesIn,
        bytesOut: this.#bytesOut,
        refusals: this.#refusals,
        ...this.#roster.totals,
      },
      ranks: this.#roster.all().map((entry) => ({
        ...entry,
        sinceAtMs: short(entry.sinceAtMs),
        loss: this.losses.last(entry.rank),
      })),
      hosts: this.#hostViews(),
      gathering: this.#gathering(),
      passes: options.passes(),
      deltas: options.deltas(),
      durability: options.durability(),
    };
  }

  #deadline(): StateDocument["deadline"] {
    const { deadline } = this.#options;
    const { adaptive, floorMs, capMs } = deadline;
    return { adaptive, nowMs: short(deadline.after("model")), floorMs, capMs };
  }

  #gathering(): StateDocument["gathering"] {
    const { startedAtMs, delivered } = this.#arrivals;
    const awaited = [...this.#hosts.values()].filter(({ key, connected, ranks }) =>
      connected && ranks.size > 0 && !this.#accepted.has(key)
    );
    return {
      round: this.#round,
      startedAtMs: startedAtMs === undefined ? null : short(startedAtMs),
      delivered,
      awaited: ascending(awaited.map(({ key }) => key)),
    };
  }

  #hostViews(): HostView[] {
    return [...this.#hosts.values()].sort((a, b) => a.key - b.key).map((host) => ({
      ...host,
      sinceAtMs: short(host.sinceAtMs),
      ranks: ascending(host.ranks),
      round: this.#accepted.has(host.key)
        ? "delivered"
        : this.#arrivals.arriving(host.key)
        ? "arriving"
        : host.connected && host.ranks.size > 0
        ? "waiting"
        : "out",
    }));
  }

  #event(
    kind: EventKind,
    level: EventView["level"],
    ranks: readonly number[],
    host: string | null,
    text: string,
  ): void {
    const id = this.#events.count;
    const atMs = short(this.#options.clock());
    const event = {
      id,
      atMs,
      kind,
      level,
      round: this.#round,
      host,
      ranks: ascending(ranks),
      text,
    };
    this.#events.add(event);
    this.#revision++;
    for (const listener of this.#listeners) listener.event?.(event);
  }
}
