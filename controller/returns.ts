/**
 * Which frames of which relays were taken, so that a relay that comes back is told what became of its
 * last one.
 *
 * @module
 */
import { WireError } from "../wire/errors.ts";
import type { HelloStanding } from "../wire/control.ts";

/**
 * What a Hello means.
 *
 * - new: a relay that this controller does not know; a frame whose result it waits for is sent again.
 * - back: a relay between its frames.
 * - again: its last frame never came; it is sent again.
 * - held: its last frame is in the round that gathers.
 * - late: its last frame was in a round that has closed since, whose result is kept.
 * - lost: the same, but its result is kept no more.
 */
export type Return = "new" | "back" | "again" | "held" | "late" | "lost";

interface Life {
  /** The number by which its host is ordered. */
  readonly key: number;
  /** How many of its frames were taken in its life. */
  taken: number;
  /** The round that has the last one; undefined when none was taken here. */
  round: number | undefined;
}

/** A relay's standing with another controller, before this one. */
interface Before {
  readonly session: number;
  readonly round: number;
  readonly pending: boolean;
}

/** The lives of relays, by instance. Purely synchronous. */
export class Returns {
  readonly #lives = new Map<number, Life>();
  readonly #before = new Map<number, Before>();

  /** The number by which that relay's host is ordered; undefined when it is not known. */
  key(instance: number): number | undefined {
    return this.#lives.get(instance)?.key;
  }

  /**
   * Judges a Hello.
   *
   * @param round The round that gathers.
   * @param kept Whether a round's result can still be sent.
   * @throws {WireError} when the relay counts otherwise than we do.
   */
  judge(standing: HelloStanding, round: number, kept: (round: number) => boolean): Return {
    const { instance, sent, pending } = standing;
    const life = this.#lives.get(instance);
    if (life === undefined) return pending && this.#isOver(standing) ? "lost" : "new";
    if (life.taken === sent) {
      if (!pending) return "back";
      if (life.round === round) return "held";
      return life.round !== undefined && kept(life.round) ? "late" : "lost";
    }
    if (pending && life.taken === sent - 1) return "again";
    throw new WireError(
      "membership",
      "connection",
      `Hello of a relay that comes back: it has sent ${sent} frames, ${life.taken} came`,
    );
  }

  /**
   * A relay is in.
   *
   * @returns The relays whose pending frame, sent to another controller, this one shows to have been of
   *   a round that closed.
   */
  enter(standing: HelloStanding, key: number): number[] {
    const { instance, session, round, sent, pending } = standing;
    if (this.#lives.has(instance)) return [];
    this.#lives.set(instance, { key, taken: pending ? sent - 1 : sent, round: undefined });
    if (session === 0) return [];
    const shown = [...this.#before].filter(([, other]) =>
      other.session === session && other.pending && other.round < round
    );
    this.#before.set(instance, { session, round, pending });
    return shown.map(([other]) => other);
  }

  /** A frame of that relay is in the round. */
  take(instance: number, round: number): void {
    const life = this.#lives.get(instance);
    if (life === undefined) return;
    life.taken++;
    life.round = round;
  }

  /** Relays whose last frame is in that round. */
  inRound(round: number): number[] {
    return [...this.#lives].filter(([, life]) => life.round === round).map(([instance]) =>
      instance
    );
  }

  /** The round that has that relay's last frame. */
  lastRound(instance: number): number | undefined {
    return this.#lives.get(instance)?.round;
  }

  /** Whether the round of a pending frame is known to have closed at another controller. */
  #isOver({ session, round }: HelloStanding): boolean {
    return [...this.#before.values()].some((other) =>
      other.session === session && other.round > round
    );
  }
}
