/**
 * What a controller says of itself: the document at GET /state.json, and how GET /events tells that it
 * changed.
 *
 * Every field is always there; null says that there is nothing to say. Names end in their unit: `AtMs`
 * is milliseconds since 1970, `Ms` a duration in milliseconds, `Bytes` bytes. Lists are bounded, see
 * {@link STATE_LIMITS}. Nothing in the document is secret.
 *
 *     GET /events
 *     event: state     data: a StateDocument, once, when the stream starts
 *     event: change    data: a StateChange, at most every 250 ms, while something changes
 *     event: alive     data: null, every 15 s, while nothing does
 *
 * {@link applyChange} makes the next document of the last one and a change. A stream that breaks is
 * opened anew, and starts with a whole document again.
 *
 * @module
 */

/** How much of the past a document holds. */
export const STATE_LIMITS = {
  /** Rounds, the newest ones. */
  rounds: 240,
  /** Events, the newest ones. */
  events: 200,
  /** Losses of all ranks together, the newest ones. */
  losses: 2_000,
  /** Passes, the newest ones. */
  passes: 50,
} as const;

/** Where a rank stands. */
export type RankPhase =
  /** No relay has claimed it yet. */
  | "expected"
  /** A relay carries it. */
  | "live"
  /** It closed its connection between rounds. */
  | "left"
  /** It died, was refused, was too late, or never came. */
  | "lost";

/** One rank. */
export interface RankView {
  readonly rank: number;
  readonly phase: RankPhase;
  /** When it got there. */
  readonly sinceAtMs: number;
  /** The name of the host that carries it, or did last. */
  readonly host: string | null;
  /** Why it is gone, in a sentence. */
  readonly reason: string | null;
  /** How many times it came back. */
  readonly returns: number;
  /** In how many rounds it was given up because it was late. */
  readonly timesLate: number;
  /** The last loss that it reported. */
  readonly loss: number | null;
}

/** One host, which is one relay. */
export interface HostView {
  /** The number by which hosts are folded: the lowest rank of its first Hello. */
  readonly key: number;
  readonly name: string;
  /** The relay's address as the controller sees it, host:port. */
  readonly peer: string;
  /** Whether its relay is connected. */
  readonly connected: boolean;
  readonly sinceAtMs: number;
  /** The ranks that it carries now, ascending. */
  readonly ranks: readonly number[];
  /** What it did for the round that is gathering: nothing yet, its frame is coming, it is there. */
  readonly round: "waiting" | "arriving" | "delivered" | "out";
  /** Frames accepted from it. */
  readonly frames: number;
  /** Bytes of these frames, framing included. */
  readonly bytesIn: number;
  /** Bytes of results sent to it. */
  readonly bytesOut: number;
  /** Mass of the last frame accepted. */
  readonly mass: number | null;
}

/** One host's part in a round. */
export interface Arrival {
  /** {@link HostView.key}. */
  readonly key: number;
  readonly host: string;
  /** Ranks behind the frame, ascending. */
  readonly ranks: readonly number[];
  /** When its frame began to arrive, after the round's first byte. */
  readonly beganMs: number;
  /** When its frame was there and verified, after the round's first byte. */
  readonly arrivedMs: number;
  readonly bytes: number;
  readonly mass: number;
  /**
   * When each of its ranks' frames was there, after the first of that host's; null where the relay does
   * not say.
   */
  readonly rankArrivals: readonly RankArrival[] | null;
}

/** One rank's frame at its relay. */
export interface RankArrival {
  readonly rank: number;
  /** When its frame was there and verified, after the first byte that its relay had of the round. */
  readonly arrivedMs: number;
}

/** A round that closed. */
export interface RoundView {
  /** Its number, from 0. */
  readonly round: number;
  /** An average of weights, or a sum. */
  readonly kind: "model" | "control";
  /** When the first byte of it came. */
  readonly startedAtMs: number;
  /** From its first byte until its result was ready. */
  readonly durationMs: number;
  /** Of the accepted frames together. */
  readonly mass: number;
  /** Accepted frames in the order of their arrival, the first one first. */
  readonly arrivals: readonly Arrival[];
  /** Ranks whose work is in the result. */
  readonly ranks: number;
  /** Ranks given up in this round because they were late, ascending. */
  readonly late: readonly number[];
  /** How long the last host arrived after the first one. */
  readonly lagMs: number;
  /** How long the last host arrived after the median one. */
  readonly lagOfMedianMs: number;
  /** The deadline that held for it, from the first frame that was there. */
  readonly deadlineMs: number;
  /** Bytes of frames accepted. */
  readonly bytesIn: number;
  /** Bytes of results, to all hosts together. */
  readonly bytesOut: number;
}

/** The round that is gathering. */
export interface GatheringView {
  /** Its number. */
  readonly round: number;
  /** When its first byte came; null while none has. */
  readonly startedAtMs: number | null;
  /** Keys of hosts whose frame is there, in the order of arrival. */
  readonly delivered: readonly number[];
  /** Keys of hosts that it waits for, ascending. */
  readonly awaited: readonly number[];
}

/** How long rounds wait for the late. */
export interface DeadlineView {
  /** Whether it follows recent arrivals. */
  readonly adaptive: boolean;
  /** What holds for the round that is gathering. */
  readonly nowMs: number;
  /** The bounds of an adaptive one; both the deadline itself for a fixed one. */
  readonly floorMs: number;
  readonly capMs: number;
}

/** Counts since the start. */
export interface TotalsView {
  readonly rounds: number;
  readonly bytesIn: number;
  readonly bytesOut: number;
  /** Connections refused: wrong tags, odd frames, wrong ranks. */
  readonly refusals: number;
  /** Ranks lost, each time counted. */
  readonly deaths: number;
  /** Ranks that came back, each time counted. */
  readonly returns: number;
  /** Ranks given up because they were late, each time counted. */
  readonly late: number;
}

/** A federated pass. */
export interface PassView {
  /** "{round}-{initiator}". */
  readonly key: string;
  readonly phase: "collecting" | "aggregating" | "complete" | "failed";
  /** Why it failed. */
  readonly reason: string | null;
  /** Peers that have delivered every layer. */
  readonly received: number;
  readonly expected: number;
  readonly startedAtMs: number;
  readonly deadlineAtMs: number;
}

/** A peer that weight deltas go to. */
export interface DeltaPeerView {
  /** Its host:port. */
  readonly address: string;
  readonly state: "idle" | "dialing" | "open";
  /** Whether it asked for a snapshot, as Tierfold's replicas do. */
  readonly replica: boolean;
  /** Fragments that wait for it. */
  readonly waiting: number;
  readonly dropped: number;
  readonly sent: number;
  /** The last thing that went wrong with it. */
  readonly lastError: string | null;
}

/** What is kept on the disk. */
export interface DurabilityView {
  /** Steps of the consensus so far, those before a resume included. */
  readonly step: number;
  /** The checkpoint it went on from. */
  readonly resumedStep: number | null;
  /** The last checkpoint that the disk has. */
  readonly checkpoint: {
    readonly step: number;
    readonly round: number;
    readonly atMs: number;
    readonly bytes: number;
  } | null;
  /** What went wrong when the last checkpoint was written; null once one was written again. */
  readonly error: string | null;
}

/** A loss that a rank reported. */
export interface LossView {
  readonly rank: number;
  /** The rank's own count of steps or rounds. */
  readonly step: number;
  readonly loss: number;
  readonly atMs: number;
}

/** What an event is about. */
export type EventKind =
  | "session"
  | "host_joined"
  | "host_done"
  | "host_lost"
  | "rank_joined"
  | "rank_returned"
  | "rank_left"
  | "rank_lost"
  | "rank_late"
  | "refused"
  | "nonfinite"
  | "checkpoint"
  | "pass"
  | "delta";

/** Something that happened. */
export interface EventView {
  /** Ascending by 1. */
  readonly id: number;
  readonly atMs: number;
  readonly kind: EventKind;
  readonly level: "info" | "warning" | "error";
  readonly round: number | null;
  /** The host's name, where it is about one. */
  readonly host: string | null;
  /** Ranks it is about, ascending. */
  readonly ranks: readonly number[];
  /** A sentence. */
  readonly text: string;
}

/** Everything at once. */
export interface StateDocument {
  /** Of this format: a field that goes or changes its meaning raises it. */
  readonly format: 1;
  readonly role: "controller";
  /** Tierfold's version. */
  readonly version: string;
  /** Made at random at the start of the controller. */
  readonly session: string;
  readonly startedAtMs: number;
  /** When the document was made; the uptime is this less `startedAtMs`. */
  readonly nowMs: number;
  /** Where relays connect, host:port; null before it listens. */
  readonly listen: string | null;
  readonly worldSize: number;
  /** "waiting" until every rank has a relay or is given up. */
  readonly phase: "waiting" | "running" | "over";
  /** What /readyz says. */
  readonly ready: boolean;
  /** Why it is not ready, a sentence each. */
  readonly notReady: readonly string[];
  /** What sums. */
  readonly kernel: string;
  /** The largest frame accepted, in bytes. */
  readonly frameCeilingBytes: number;
  readonly deadline: DeadlineView;
  readonly totals: TotalsView;
  /** All ranks of the session, by number. */
  readonly ranks: readonly RankView[];
  /** Every host seen, by key. */
  readonly hosts: readonly HostView[];
  readonly gathering: GatheringView;
  /** Rounds that closed, oldest first. */
  readonly rounds: readonly RoundView[];
  /** Losses that ranks reported, oldest first. */
  readonly losses: readonly LossView[];
  /** Federated passes, oldest first; null without them. */
  readonly passes: readonly PassView[] | null;
  /** Peers of the delta publisher; null without one. */
  readonly deltas: readonly DeltaPeerView[] | null;
  /** Null without a ledger, checkpoints or outer optimizer. */
  readonly durability: DurabilityView | null;
  /** Oldest first. */
  readonly events: readonly EventView[];
}

/** The lists of a document that only grow at their end. */
export type GrowingList = "rounds" | "losses" | "events";

/** What changed since the document, or the change, before it. */
export interface StateChange {
  /** When the change was made. */
  readonly nowMs: number;
  /** Fields that have another value now, whole. */
  readonly set: Partial<Omit<StateDocument, GrowingList | "nowMs">>;
  /** What came to the ends of lists, oldest first. */
  readonly append: { readonly [List in GrowingList]?: StateDocument[List] };
}

/** The document after a change; the one before stays as it is. */
export function applyChange(document: StateDocument, change: StateChange): StateDocument {
  const { nowMs, set, append } = change;
  return {
    ...document,
    ...set,
    nowMs,
    rounds: grown(document.rounds, append.rounds, STATE_LIMITS.rounds),
    losses: grown(document.losses, append.losses, STATE_LIMITS.losses),
    events: grown(document.events, append.events, STATE_LIMITS.events),
  };
}

function grown<T>(list: readonly T[], more: readonly T[] | undefined, limit: number): readonly T[] {
  return more === undefined ? list : [...list, ...more].slice(-limit);
}
