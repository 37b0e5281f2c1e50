/**
 * What a relay says of itself: the document at its GET /state.json. Fields are named as in the
 * controller's (observe/state.ts).
 *
 * @module
 */
import type { DeadlineView, EventView, RankArrival, RankView, TotalsView } from "./state.ts";

/** How much of the past a document holds: the newest rounds and events. */
export const RELAY_STATE_LIMITS = { rounds: 240, events: 200 } as const;

/** A round that this host took part in. */
export interface RelayRoundView {
  /** Its number at this relay, from 0. */
  readonly round: number;
  /** An average of weights, or a sum. */
  readonly kind: "model" | "control";
  /** When the first byte of it came from a rank. */
  readonly startedAtMs: number;
  /** From its first byte until the host's sum was ready. */
  readonly gatherMs: number;
  /** From its first byte until its result was there from the controller. */
  readonly durationMs: number;
  /** Of this host's frames together. */
  readonly mass: number;
  /** Of all hosts' frames together. */
  readonly resultMass: number;
  /** Accepted frames in the order of their arrival, the first one first. */
  readonly arrivals: readonly RankArrival[];
  /** Ranks given up in this round because they were late, ascending. */
  readonly late: readonly number[];
  /** How long the last rank arrived after the first one. */
  readonly lagMs: number;
  /** How long the last rank arrived after the median one. */
  readonly lagOfMedianMs: number;
  /** The deadline that held for it, from the first frame that was there. */
  readonly deadlineMs: number;
}

/** Counts since the start. */
export interface RelayTotalsView extends TotalsView {
  /** Bytes of sums sent to the controller. */
  readonly bytesUp: number;
  /** Bytes of results from the controller. */
  readonly bytesDown: number;
  /** Frames refused because a value was NaN or infinite. */
  readonly nonfiniteFrames: number;
  /** Values that were NaN or infinite and counted as 0. */
  readonly nonfiniteValues: number;
}

/** Everything at once. */
export interface RelayDocument {
  /** Of this format: a field that goes or changes its meaning raises it. */
  readonly format: 1;
  readonly role: "relay";
  /** Tierfold's version. */
  readonly version: string;
  /** This host's name. */
  readonly host: string;
  readonly startedAtMs: number;
  /** When the document was made. */
  readonly nowMs: number;
  /** Where ranks connect, host:port; null before it listens. */
  readonly listen: string | null;
  /** The controller that has taken this relay in, host:port; null while none has. */
  readonly controller: string | null;
  readonly worldSize: number;
  /** "waiting" until every rank of this host has come or is given up. */
  readonly phase: "waiting" | "running" | "over";
  /** What /readyz says. */
  readonly ready: boolean;
  /** Why it is not ready, a sentence each. */
  readonly notReady: readonly string[];
  /** What sums. */
  readonly kernel: string;
  readonly deadline: DeadlineView;
  readonly totals: RelayTotalsView;
  /** The ranks of this host, ascending. */
  readonly ranks: readonly Omit<RankView, "loss">[];
  /** The round that is gathering. */
  readonly gathering: {
    readonly round: number;
    /** When its first byte came; null while none has. */
    readonly startedAtMs: number | null;
    /** Ranks whose frame is there, in the order of arrival. */
    readonly delivered: readonly number[];
    /** Whether the host's sum is on its way, and its result is waited for. */
    readonly sent: boolean;
  };
  /** Rounds that closed, oldest first. */
  readonly rounds: readonly RelayRoundView[];
  /** Oldest first. */
  readonly events: readonly EventView[];
}
