/**
 * Holds what the ranks of a chaos run say against each other.
 *
 * @module
 */

/** A round as one rank heard its result. */
export interface HeardRound {
  readonly rank: number;
  /** Milliseconds since 1970. */
  readonly begun: number;
  readonly ended: number;
  readonly mass: number;
  /** By rank: the count that it gave; null when it is not in the round. */
  readonly counts: readonly (number | null)[];
}

/** How many frames are remembered: far more than the rounds in which a frame could come up again. */
const REMEMBERED = 40_000;

/** Knows which frame was in which round. Purely synchronous. */
export class Judge {
  /** Rank and count of a frame -> the round that it is in. */
  readonly #rounds = new Map<string, string>();
  /** By rank: the highest count that anybody has heard of. */
  readonly #highest = new Map<number, number>();
  #count = 0;

  /** Different rounds so far. */
  get rounds(): number {
    return this.#count;
  }

  /** The highest count of a rank that was in any result. */
  highest(rank: number): number {
    return this.#highest.get(rank) ?? 0;
  }

  /**
   * Takes a result into account.
   *
   * @returns What is wrong with it, if anything is: a frame in two rounds, or two results of one round.
   */
  hear({ rank, mass, counts }: HeardRound): string[] {
    const round = counts.map((count) => count ?? "-").join(" ");
    const problems: string[] = [];
    let fresh = true;
    for (const [from, count] of counts.entries()) {
      if (count === null) continue;
      const frame = `${from}:${count}`;
      const other = this.#rounds.get(frame);
      if (other === round) fresh = false;
      else if (other !== undefined) {
        problems.push(
          `rank ${rank} has heard of a round of the counts ${round} (mass ${mass}), but count ` +
            `${count} of rank ${from} was in a round of the counts ${other} too`,
        );
      }
      this.#rounds.set(frame, round);
      this.#highest.set(from, Math.max(this.highest(from), count));
    }
    if (fresh) this.#count++;
    while (this.#rounds.size > REMEMBERED) this.#rounds.delete(this.#rounds.keys().next().value!);
    return problems;
  }
}
