/**
 * What a backward pass is made of, and how it can be refused.
 *
 * @module
 */

/** Why a call about a pass was refused. */
export type PassErrorCode =
  | "InvalidPass"
  | "PassExists"
  | "PassNotFound"
  | "PassAlreadyTerminal"
  | "PassAggregating"
  | "NotReady"
  | "TooManyPasses"
  | "TooManyPeers"
  | "UnknownPeer"
  | "UnknownLayer"
  | "ConflictingContribution"
  | "InvalidSamples"
  | "ShapeMismatch"
  | "NonFinite"
  | "NormExceeded";

/** A refused call about a pass; nothing was changed by it. */
export class PassError extends Error {
  /** "PassError". */
  override readonly name = "PassError";
  /** The cause. */
  readonly code: PassErrorCode;

  /** Builds the error from its cause and from what was being done, expected, and found. */
  constructor(code: PassErrorCode, message: string) {
    super(message);
    this.code = code;
  }
}

/** Where a pass stands; see {@link PassCoordinator} for how it moves. */
export type PassState =
  | { readonly kind: "Pending" }
  | {
    readonly kind: "CollectingGradients";
    /** Peers that have delivered every layer. */
    readonly received: number;
    /** Peers that are waited for. */
    readonly expected: number;
  }
  | { readonly kind: "Aggregating" }
  | {
    readonly kind: "Complete";
    /** Name of the aggregated block. */
    readonly cid: string;
  }
  | {
    readonly kind: "Failed";
    /** Why, in a sentence. */
    readonly reason: string;
  };

/** One layer that every peer of a pass delivers. */
export interface PassLayer {
  /** Its name: 1 to 128 of the characters A-Z a-z 0-9 . _ ~ - */
  readonly name: string;
  /** Its dims; undefined leaves them to the first contribution. */
  readonly shape?: readonly number[] | undefined;
}

/** What the initiator of a pass asks for. */
export interface PassSpec {
  /** Training round, an integer >= 0. */
  readonly round: number;
  /** Who starts it: 1 to 64 of the characters A-Z a-z 0-9 . _ ~ - */
  readonly initiator: string;
  /** How many peers are waited for, at least 1. */
  readonly expected: number;
  /** The layers that each peer delivers, at least one, in the order of the aggregated block. */
  readonly layers: readonly PassLayer[];
  /** How long the pass may collect, in milliseconds. */
  readonly deadlineMs: number;
  /** At the deadline, aggregate if at least so many peers delivered every layer; undefined: fail. */
  readonly quorum?: number | undefined;
  /** The only peers that may contribute; undefined: any. */
  readonly peers?: readonly string[] | undefined;
  /** Largest num_samples that a peer may claim. */
  readonly maxSamples?: number | undefined;
  /** Largest Euclidean norm of one layer's values. */
  readonly maxNorm?: number | undefined;
  /** True when the values are weights, so that the result is a consensus to follow. */
  readonly consensus?: boolean | undefined;
}

/** One layer of one peer, as the coordinator knows it: by name, not by value. */
export interface Contribution {
  /** Who sent it: 1 to 64 of the characters A-Z a-z 0-9 . _ ~ - */
  readonly peer: string;
  /** Name of the block. */
  readonly cid: string;
  /** Which layer it is. */
  readonly layer: string;
  /** Samples behind it, an integer >= 0, the same for every layer of a peer. */
  readonly numSamples: number;
  /** Sum of the squares of its values, in float64. */
  readonly squares: number;
  /** When it came, in milliseconds since 1970. */
  readonly submittedAtMs: number;
}

/** A pass as others see it. */
export interface PassStatus {
  /** "{round}-{initiator}". */
  readonly key: string;
  /** What was asked for. */
  readonly spec: PassSpec;
  /** Where it stands. */
  readonly state: PassState;
  /** Peers that have delivered every layer. */
  readonly received: number;
  /** When it was started, in milliseconds since 1970. */
  readonly startedAtMs: number;
  /** When it stops collecting, in milliseconds since 1970. */
  readonly deadlineAtMs: number;
}

const NAME = /^[A-Za-z0-9._~-]+$/;
/** Most characters of an initiator's or a peer's name. */
export const MAX_PEER_NAME = 64;
/** Most characters of a layer's name. */
export const MAX_LAYER_NAME = 128;
/** Most peers that one pass may wait for. */
export const MAX_EXPECTED = 10_000;
/** Most layers of one pass. */
export const MAX_LAYERS = 4_096;
/** Longest time that a pass may collect: a week. */
export const MAX_DEADLINE_MS = 7 * 24 * 3600 * 1000;

/** Whether `name` can stand in a URL as it is: at most `max` unreserved characters, no dots alone. */
export function isName(name: string, max: number): boolean {
  return name.length <= max && NAME.test(name) && !/^\.+$/.test(name);
}

/** The key of a pass. */
export function passKey(round: number, initiator: string): string {
  return `${round}-${initiator}`;
}

function isCount(value: number, least: number, most: number): boolean {
  return Number.isSafeInteger(value) && value >= least && value <= most;
}

/**
 * Checks what an initiator asks for.
 *
 * @throws {PassError} InvalidPass, naming the field.
 */
export function checkSpec(spec: PassSpec): void {
  const refuse = (what: string): never => {
    throw new PassError("InvalidPass", `starting pass ${spec.round}-${spec.initiator}: ${what}`);
  };
  const { round, initiator, expected, layers, deadlineMs, quorum, peers } = spec;
  if (!isCount(round, 0, Number.MAX_SAFE_INTEGER)) refuse(`round ${round} is not an integer >= 0`);
  if (!isName(initiator, MAX_PEER_NAME)) refuse("its initiator is not a name");
  if (!isCount(expected, 1, MAX_EXPECTED)) {
    refuse(`expected is ${expected}, not an integer in 1..${MAX_EXPECTED}`);
  }
  if (!isCount(layers.length, 1, MAX_LAYERS)) {
    refuse(`it has ${layers.length} layers, not 1..${MAX_LAYERS}`);
  }
  const names = new Set<string>();
  for (const { name, shape } of layers) {
    if (!isName(name, MAX_LAYER_NAME)) refuse(`${JSON.stringify(name)} is not a layer's name`);
    if (names.has(name)) refuse(`layer "${name}" is there twice`);
    names.add(name);
    if (shape !== undefined && !shape.every((dim) => isCount(dim, 0, 0xffff_ffff))) {
      refuse(`the shape [${shape}] of layer "${name}" has a dim that is not a u32`);
    }
  }
  if (!isCount(deadlineMs, 1, MAX_DEADLINE_MS)) {
    refuse(`its deadline of ${deadlineMs} ms is not in 1..${MAX_DEADLINE_MS}`);
  }
  if (quorum !== undefined && !isCount(quorum, 1, expected)) {
    refuse(`its quorum of ${quorum} is not in 1..${expected}, the number of peers expected`);
  }
  if (peers !== undefined) {
    const bad = peers.find((peer) => !isName(peer, MAX_PEER_NAME));
    if (bad !== undefined) refuse(`${JSON.stringify(bad)} is not a peer's name`);
    if (new Set(peers).size < expected || peers.length > MAX_EXPECTED) {
      refuse(`it expects ${expected} peers and allows ${peers.length}`);
    }
  }
}
