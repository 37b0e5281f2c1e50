/**
 * What a rank's work weighs (realized work; flodl 0.6.0).
 *
 * @module
 */

/**
 * The mass of `steps` optimizer steps since the last sync: steps^gamma, and 0 without a step whatever
 * gamma is. gamma 1 weighs ranks by their work, gamma 0 makes every rank that worked equal.
 *
 * ```ts
 * import { assertEquals } from "@std/assert";
 * import { gammaMass } from "@tierfold/tierfold";
 *
 * assertEquals([0, 4, 9].map((steps) => gammaMass(steps)), [0, 4, 9]);
 * assertEquals([0, 4, 9].map((steps) => gammaMass(steps, 0.5)), [0, 2, 3]);
 * assertEquals([0, 4, 9].map((steps) => gammaMass(steps, 0)), [0, 1, 1]);
 * ```
 *
 * @param steps Optimizer steps since the last sync.
 * @param gamma The exponent.
 * @throws {RangeError} when either is not finite.
 */
export function gammaMass(steps: number, gamma = 1): number {
  if (!Number.isFinite(steps) || !Number.isFinite(gamma)) {
    throw new RangeError(`the mass of ${steps} steps with gamma ${gamma}: both must be finite`);
  }
  if (steps <= 0) return 0;
  return gamma === 1 ? steps : steps ** gamma;
}

/**
 * The mass of buffers that are not trained but moved by training, such as BatchNorm statistics: 1 for
 * a rank that made a step since the last sync, else 0.
 *
 * ```ts
 * import { assertEquals } from "@std/assert";
 * import { moverMass } from "@tierfold/tierfold";
 *
 * assertEquals([0, 1, 20].map(moverMass), [0, 1, 1]);
 * ```
 *
 * @param steps Optimizer steps since the last sync.
 */
export function moverMass(steps: number): number {
  return steps > 0 ? 1 : 0;
}
