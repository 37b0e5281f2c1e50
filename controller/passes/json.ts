/**
 * The JSON of the intake as types; controller/passes/schemas.ts checks it.
 *
 * @module
 */
import type { PassState } from "./pass.ts";

/** What starts a pass. */
export interface StartJson {
  /** The training round, an integer >= 0. */
  readonly round: number;
  /** Who starts it: 1 to 64 of the characters A-Z a-z 0-9 . _ ~ - */
  readonly initiator: string;
  /** How many peers are waited for. */
  readonly expected: number;
  /** What each peer delivers; a shape left out is that of the first contribution. */
  readonly layers: {
    /** 1 to 128 of the characters A-Z a-z 0-9 . _ ~ - */
    readonly name: string;
    /** Its dims. */
    readonly shape?: number[] | undefined;
  }[];
  /** How long the pass collects, in milliseconds; ten minutes unless given. */
  readonly deadline_ms?: number | undefined;
  /** At the deadline, aggregate with so many peers instead of failing. */
  readonly quorum?: number | undefined;
  /** The only peers that may contribute. */
  readonly peers?: string[] | undefined;
  /** Largest num_samples of a peer. */
  readonly max_samples?: number | undefined;
  /** Largest Euclidean norm of one layer's values. */
  readonly max_norm?: number | undefined;
  /** The values are weights: the result is published as the consensus. */
  readonly consensus?: boolean | undefined;
}

/** One layer of a pass. */
export interface PassLayerJson {
  /** Its name. */
  readonly name: string;
  /** Its dims, as soon as they are known. */
  readonly shape?: readonly number[] | undefined;
  /** Name of the aggregated layer, once the pass is Complete. */
  readonly cid?: string | undefined;
}

/** A contribution that was scaled down. */
export interface ClippedJson {
  /** Whose. */
  readonly peer: string;
  /** The Euclidean norm that it had. */
  readonly norm: number;
}

/** A pass. */
export interface PassJson {
  /** "{round}-{initiator}". */
  readonly key: string;
  /** The training round. */
  readonly round: number;
  /** Who started it. */
  readonly initiator: string;
  /** Where it stands. */
  readonly state: PassState;
  /** Peers that delivered every layer. */
  readonly received: number;
  /** Peers that are waited for. */
  readonly expected: number;
  /** Peers that are enough at the deadline. */
  readonly quorum?: number | undefined;
  /** Whether the result is a consensus. */
  readonly consensus: boolean;
  /** Its layers, in the order of the aggregated block. */
  readonly layers: readonly PassLayerJson[];
  /** Samples behind the result, once the pass is Complete. */
  readonly num_samples?: number | undefined;
  /** Which mean is taken: weighted by samples, or coordinate by coordinate without weights. */
  readonly aggregate: "mean" | "trimmed" | "median";
  /** Largest norm of a contribution; larger ones are scaled down to it. */
  readonly clip_norm?: number | undefined;
  /** How many values of each coordinate were left out at either end, once the pass is Complete. */
  readonly trimmed?: number | undefined;
  /** Who was scaled down, once the pass is Complete. */
  readonly clipped?: readonly ClippedJson[] | undefined;
  /** When it was started, in milliseconds since 1970. */
  readonly started_at_ms: number;
  /** When it stops collecting, in milliseconds since 1970. */
  readonly deadline_at_ms: number;
}

/** One layer that one peer delivered. */
export interface ContributionJson {
  /** Who. */
  readonly peer: string;
  /** Which layer. */
  readonly layer: string;
  /** Name of the block. */
  readonly cid: string;
  /** Samples behind it. */
  readonly num_samples: number;
  /** Euclidean norm of its values. */
  readonly norm: number;
  /** When it came, in milliseconds since 1970. */
  readonly submitted_at_ms: number;
}

/** A pass with what was contributed. */
export interface PassDetailJson extends PassJson {
  /** What came so far. */
  readonly contributions: readonly ContributionJson[];
}

/** The answer to a contribution. */
export interface AcceptedJson {
  /** Name of the block. */
  readonly cid: string;
  /** Whether the very same block was there before. */
  readonly repeated: boolean;
  /** Where the pass stands now. */
  readonly state: PassState;
}
