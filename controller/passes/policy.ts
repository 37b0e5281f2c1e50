/**
 * What the intake does about contributors who are not trusted: how large a contribution may be before it
 * is scaled down, and which mean is taken of each coordinate.
 *
 * The coordinate-wise trimmed mean and median are those of D. Yin, Y. Chen, K. Ramchandran and P.
 * Bartlett, "Byzantine-Robust Distributed Learning: Towards Optimal Statistical Rates", ICML 2018,
 * definitions 1 and 2.
 *
 * @module
 */
import { type Contribution, PassError, type PassSpec } from "./pass.ts";

/** Which mean is taken. */
export type Aggregation =
  /** Weighted by samples: the fold. */
  | { readonly kind: "mean" }
  /**
   * Of each coordinate the `trim` smallest and the `trim` largest values are left out; the rest is
   * averaged without weights. Below 0.5 it is a share of the contributions, rounded down; from 1 up a
   * number of them.
   */
  | { readonly kind: "trimmed"; readonly trim: number }
  /** The middle value of each coordinate, or the mean of the two middle ones, without weights. */
  | { readonly kind: "median" };

/** What is done about contributors who are not trusted. */
export interface PassPolicy {
  /** Largest Euclidean norm of all values of a contribution; undefined: any. */
  readonly clipNorm?: number | undefined;
  /** Which mean is taken. */
  readonly aggregation: Aggregation;
}

/** Everybody is trusted: the fold. */
export const TRUSTING: PassPolicy = { aggregation: { kind: "mean" } };

/** A contribution that was scaled down. */
export interface Clipped {
  /** Whose. */
  readonly peer: string;
  /** The norm that it had. */
  readonly norm: number;
}

/** A contribution, by name, and what is made of it before it is averaged. */
export interface Voice {
  /** One contribution per layer, in the order of the layers. */
  readonly layers: readonly Contribution[];
  /** What its values are multiplied by, in float64, rounded once to f32; 1 leaves their bits alone. */
  readonly scale: number;
}

/** What is averaged, and how. */
export interface AggregationPlan {
  /** In the order of the fold. */
  readonly voices: readonly Voice[];
  /** How many values of each coordinate are left out at either end; undefined: the weighted mean. */
  readonly trim: number | undefined;
  /** Who was scaled down. */
  readonly clipped: readonly Clipped[];
}

/** Keeps a share like 0.29 of 100 from becoming 28 by the rounding of its product. */
const SHARE_SLACK = 1e-9;

/**
 * How many values of each coordinate are left out at either end.
 *
 * @param count How many contributions there are, at least 1.
 * @returns Undefined for the weighted mean.
 */
export function trimOf(aggregation: Aggregation, count: number): number | undefined {
  if (aggregation.kind === "mean") return undefined;
  if (aggregation.kind === "median") return Math.floor((count - 1) / 2);
  const { trim } = aggregation;
  return trim < 1 ? Math.floor(trim * count + SHARE_SLACK) : trim;
}

/** Undefined when something is left of `count` contributions, and otherwise a sentence. */
function nothingLeft(aggregation: Aggregation, count: number): string | undefined {
  const trim = trimOf(aggregation, count);
  if (trim === undefined || 2 * trim < count) return undefined;
  return `leaving out ${trim} values at either end leaves none of ${count} contributions, at least ` +
    `${2 * trim + 1} are needed`;
}

/**
 * Checks that a pass will have enough contributions for its mean.
 *
 * @throws {PassError} InvalidPass.
 */
export function checkEnough(spec: PassSpec, { aggregation }: PassPolicy): void {
  for (const [what, count] of [["expected", spec.expected], ["quorum", spec.quorum]] as const) {
    const problem = count === undefined ? undefined : nothingLeft(aggregation, count);
    if (problem === undefined) continue;
    throw new PassError(
      "InvalidPass",
      `starting pass ${spec.round}-${spec.initiator}: ${what} is ${count}, but ${problem}`,
    );
  }
}

/**
 * Decides what becomes of each contribution. Without weights, who has no samples has no say, unless
 * nobody has any.
 *
 * @param key The pass, for the error.
 * @param peers Of each peer its contributions in the order of the layers.
 * @throws {PassError} NotReady when the mean leaves nothing of them.
 */
export function planAggregation(
  key: string,
  peers: readonly (readonly Contribution[])[],
  { aggregation, clipNorm }: PassPolicy,
): AggregationPlan {
  const withSamples = peers.filter((layers) => layers[0]!.numSamples > 0);
  const heard = aggregation.kind === "mean" || withSamples.length === 0 ? peers : withSamples;
  const problem = nothingLeft(aggregation, heard.length);
  if (problem !== undefined) {
    throw new PassError("NotReady", `aggregating pass ${key}: ${problem}`);
  }
  const clipped: Clipped[] = [];
  const voices = heard.map((layers): Voice => {
    const norm = Math.sqrt(layers.reduce((sum, { squares }) => sum + squares, 0));
    if (clipNorm === undefined || norm <= clipNorm) return { layers, scale: 1 };
    clipped.push({ peer: layers[0]!.peer, norm });
    return { layers, scale: clipNorm / norm };
  });
  return { voices, trim: trimOf(aggregation, heard.length), clipped };
}
