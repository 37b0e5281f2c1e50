/**
 * The controller's options about federated passes whose contributors are not trusted.
 *
 * @module
 */
import { option, optionalOption, type OptionValues, UsageError } from "./spec.ts";
import { choice, decimal } from "./values.ts";

/** The options. */
export const passTable = {
  aggregate: option({
    value: "NAME",
    help:
      "which mean passes take: mean (weighted by samples), trimmed or median (of each coordinate, without weights)",
    schema: choice(["mean", "trimmed", "median"]),
    fallback: "mean",
  }),
  trim: optionalOption({
    value: "K|SHARE",
    help:
      "for trimmed: how many values of each coordinate are left out at either end, or below 0.5 which share of them",
    schema: decimal({ above: 0, max: 10_000 }),
  }),
  clipNorm: optionalOption({
    value: "X",
    help: "scale contributions to passes whose Euclidean norm is larger than this down to it",
    schema: decimal({ above: 0, max: 1e30 }),
  }),
};

type Values = OptionValues<typeof passTable>;

/** What passes do about contributors who are not trusted. */
export interface PassPolicyChoice {
  readonly clipNorm: number | undefined;
  readonly aggregation:
    | { readonly kind: "mean" }
    | { readonly kind: "median" }
    | { readonly kind: "trimmed"; readonly trim: number };
}

/**
 * Makes one of single values.
 *
 * @param http Whether there can be passes.
 * @throws {UsageError} when they do not fit together.
 */
export function finishPasses(values: Values, http: boolean): PassPolicyChoice {
  const { aggregate: kind, trim, clipNorm } = values;
  const problems: string[] = [];
  if (!http && (kind !== "mean" || clipNorm !== undefined)) {
    problems.push(
      `${kind === "mean" ? "--clip-norm" : `--aggregate ${kind}`}: there are no passes without ` +
        "--http HOST:PORT; rounds of ranks take the weighted mean",
    );
  }
  if (kind === "trimmed" && trim === undefined) {
    problems.push("--aggregate trimmed needs --trim: a number of values, or a share below 0.5");
  }
  if (kind !== "trimmed" && trim !== undefined) {
    problems.push(`--trim: --aggregate ${kind} has no use for it, only trimmed`);
  }
  if (trim !== undefined && trim >= 0.5 && !Number.isInteger(trim)) {
    problems.push(`--trim: expected a whole number, or a share below 0.5, got ${trim}`);
  }
  if (problems.length > 0) throw new UsageError(problems);
  const aggregation = kind === "trimmed" ? { kind, trim: trim! } : { kind };
  return { clipNorm, aggregation };
}
