/**
 * The controller's options about what outlives a round.
 *
 * @module
 */
import type { Manifest } from "../wire/manifest.ts";
import { manifestOption, readManifest } from "./manifest.ts";
import { flagOf, option, optionalOption, type OptionValues, UsageError } from "./spec.ts";
import { choice, decimal, text, wholeNumber, yesNo } from "./values.ts";

/** The options. */
export const stateTable = {
  state: optionalOption({
    value: "DIR",
    help: "a directory for the ledger and checkpoints of one training; nothing is kept without it",
    schema: text("the name of a directory"),
  }),
  checkpointEvery: option({
    value: "N",
    help:
      "with --state, write a checkpoint after every n-th Model round; one is written at the end",
    schema: wholeNumber(1, 1_000_000_000),
    fallback: "10",
  }),
  checkpointKeep: option({
    value: "N",
    help: "how many checkpoints stay",
    schema: wholeNumber(1, 1_000_000),
    fallback: "3",
  }),
  resume: option({
    value: null,
    help: "go on from the last good checkpoint in --state; start afresh where there is none yet",
    schema: yesNo(),
    fallback: "false",
  }),
  outerOptimizer: option({
    value: "NAME",
    help:
      "what the root makes of a Model round's average: average (itself), nesterov (DiLoCo) or fedadam",
    schema: choice(["average", "nesterov", "fedadam"]),
    fallback: "average",
  }),
  outerRate: optionalOption({
    value: "X",
    help: "the outer optimizer's step size; 0.7 for nesterov and 0.1 for fedadam when not given",
    schema: decimal({ above: 0, max: 1e6 }),
  }),
  outerMomentum: optionalOption({
    value: "X",
    help: "for nesterov: what is kept of the last step; 0.9 when not given",
    schema: decimal({ min: 0, below: 1 }),
  }),
  outerBeta1: optionalOption({
    value: "X",
    help: "for fedadam: the decay of the mean of steps; 0.9 when not given",
    schema: decimal({ min: 0, below: 1 }),
  }),
  outerBeta2: optionalOption({
    value: "X",
    help: "for fedadam: the decay of the mean of their squares; 0.99 when not given",
    schema: decimal({ min: 0, below: 1 }),
  }),
  outerTau: optionalOption({
    value: "X",
    help: "for fedadam: how adaptive, the smaller the more; 0.001 when not given",
    schema: decimal({ above: 0, max: 1e6 }),
  }),
  manifest: manifestOption,
};

type Values = OptionValues<typeof stateTable>;

/** An outer optimizer and its rates. */
export type OuterChoice =
  | { readonly name: "average" }
  | { readonly name: "nesterov"; readonly rate: number; readonly momentum: number }
  | {
    readonly name: "fedadam";
    readonly rate: number;
    readonly beta1: number;
    readonly beta2: number;
    readonly tau: number;
  };

/** What outlives a round. */
export interface KeptState {
  /** Where; undefined: nowhere. */
  readonly directory: string | undefined;
  /** Steps between checkpoints. */
  readonly checkpointEvery: number;
  /** How many checkpoints stay. */
  readonly checkpointKeep: number;
  /** Whether to go on from the last good one. */
  readonly resume: boolean;
  readonly outer: OuterChoice;
  /** Names for the tensors. */
  readonly manifest: Manifest | undefined;
}

/**
 * Makes one of single values.
 *
 * @returns Undefined when nothing outlives a round.
 * @throws {UsageError} when they do not fit together.
 */
export function finishState(values: Values): KeptState | undefined {
  const outer = chooseOuter(values);
  if (values.state === undefined && values.resume) {
    throw new UsageError(["--resume: there is nothing to go on from without --state DIR"]);
  }
  const manifest = readManifest(values.manifest);
  if (values.state === undefined && outer.name === "average") return undefined;
  const { checkpointEvery, checkpointKeep, resume } = values;
  return { directory: values.state, checkpointEvery, checkpointKeep, resume, outer, manifest };
}

/** Which optimizer takes which option. */
const TAKES = {
  outerRate: ["nesterov", "fedadam"],
  outerMomentum: ["nesterov"],
  outerBeta1: ["fedadam"],
  outerBeta2: ["fedadam"],
  outerTau: ["fedadam"],
} as const;

function chooseOuter(values: Values): OuterChoice {
  const name = values.outerOptimizer;
  const odd = Object.entries(TAKES).filter(([key, takers]) =>
    values[key as keyof typeof TAKES] !== undefined && !takers.some((taker) => taker === name)
  );
  if (odd.length > 0) {
    throw new UsageError(
      odd.map(([key, takers]) =>
        `${flagOf(key)}: --outer-optimizer ${name} has no use for it, only ${takers.join(", ")}`
      ),
    );
  }
  const { outerRate, outerMomentum, outerBeta1, outerBeta2, outerTau } = values;
  if (name === "nesterov") return { name, rate: outerRate ?? 0.7, momentum: outerMomentum ?? 0.9 };
  if (name === "average") return { name };
  return {
    name,
    rate: outerRate ?? 0.1,
    beta1: outerBeta1 ?? 0.9,
    beta2: outerBeta2 ?? 0.99,
    tau: outerTau ?? 1e-3,
  };
}
