/**
 * What a checkpoint says of itself, beside its tensors.
 *
 * @module
 */
import { OUTER_OPTIMIZERS, type OuterOptions, outerVectors } from "./outer.ts";

const VERSION = 1;

/** Where training stood. */
export interface CheckpointInfo {
  /**
   * Rounds that changed the consensus, from the first session on; of several groups, those of the first.
   */
  readonly step: number;
  /** The ledger's number of the session that wrote it. */
  readonly session: number;
  /** That session's round after which it was taken, from 0. */
  readonly round: number;
  /** What its consensus was made by; its state lies behind the consensus. */
  readonly outer: OuterOptions;
  /** How many tensors each group has: rounds of other shapes have groups of their own. */
  readonly groups: readonly number[];
}

/** Writes it as JSON. */
export function encodeInfo(info: CheckpointInfo): string {
  return JSON.stringify({ version: VERSION, ...info });
}

/** Reads it; undefined when the text is none. */
export function decodeInfo(text: string): CheckpointInfo | undefined {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return undefined;
  }
  if (typeof value !== "object" || value === null) return undefined;
  const { version, step, session, round, groups, outer } = value as Record<string, unknown>;
  const good = version === VERSION && [step, session, round].every(isCount) &&
    Array.isArray(groups) && groups.length > 0 && groups.every(isCount) && isOuter(outer);
  if (!good) return undefined;
  return { step, session, round, groups, outer } as CheckpointInfo;
}

/** How many tensors of a file are the consensus'. */
export function consensusCount({ groups }: CheckpointInfo): number {
  return groups.reduce((sum, tensors) => sum + tensors, 0);
}

/** How many tensors a file has: the consensus, and each vector of the optimizer for its first group. */
export function tensorCount(info: CheckpointInfo): number {
  return consensusCount(info) + outerVectors(info.outer).length * info.groups[0]!;
}

function isCount(value: unknown): boolean {
  return Number.isSafeInteger(value) && (value as number) >= 0;
}

function isOuter(value: unknown): value is OuterOptions {
  if (typeof value !== "object" || value === null) return false;
  const { name, ...rates } = value as Record<string, unknown>;
  return OUTER_OPTIMIZERS.some((known) => known === name) &&
    Object.values(rates).every((rate) => Number.isFinite(rate));
}
