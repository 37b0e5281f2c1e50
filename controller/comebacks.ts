/**
 * Relays that come back: who they are, what became of their frames, and how long they are waited for.
 *
 * @module
 */
import type { Bytes, SlotReader } from "../frames/slot.ts";
import type { HelloPlace, HelloStanding } from "../wire/control.ts";
import { WireError } from "../wire/errors.ts";
import { Results } from "./results.ts";
import type { RelayPort } from "./relay_port.ts";
import { type Return, Returns } from "./returns.ts";

/** What {@link Returns} and {@link Results} know, with the timers around them. */
export class Comebacks {
  /** The number of this session. */
  readonly session: number;
  readonly #returns = new Returns();
  readonly #results = new Results();
  readonly #missing = new Map<number, ReturnType<typeof setTimeout>>();
  readonly #waitMs: number;
  readonly #givenUp: () => void;

  /**
   * @param waitMs How long a lost relay is waited for.
   * @param givenUp Told when that has passed.
   */
  constructor(waitMs: number, givenUp: () => void) {
    const [low, high] = crypto.getRandomValues(new Uint32Array(2));
    // 0 says that a relay knows no session.
    this.session = 1 + low! + (high! & 0xffff) * 2 ** 32;
    this.#waitMs = waitMs;
    this.#givenUp = givenUp;
  }

  /** Whether a relay that was lost may still come back. */
  get expected(): boolean {
    return this.#missing.size > 0;
  }

  /** The number by which that relay's host is ordered; undefined when it was never here. */
  key(instance: number): number | undefined {
    return this.#returns.key(instance);
  }

  /**
   * Judges a Hello.
   *
   * @param round The round that gathers.
   * @throws {WireError} when the result that it waits for is gone, or it counts otherwise than we do.
   */
  judge(standing: HelloStanding, round: number): Exclude<Return, "lost"> {
    const found = this.#returns.judge(standing, round, (of) => this.#results.has(of));
    if (found !== "lost") return found;
    throw new WireError("membership", "connection", LOST);
  }

  /**
   * What a relay is told.
   *
   * @param enters The round in which its next frame counts, or the one that has its last frame.
   */
  place(found: Return, { pending }: HelloStanding, enters: number): HelloPlace {
    const { session } = this;
    if (!pending) return { session, round: enters, fate: "none" };
    if (found === "late") return { session, round: enters - 1, fate: "held" };
    return { session, round: enters, fate: found === "held" ? "held" : "again" };
  }

  /** A relay is in; gives the hosts of {@link Returns.enter}, by number. */
  enter(standing: HelloStanding, key: number): number[] {
    const { instance } = standing;
    clearTimeout(this.#missing.get(instance));
    this.#missing.delete(instance);
    return this.#returns.enter(standing, key).map((other) => this.#returns.key(other)!);
  }

  /** A frame of that relay arrives: it has all that it was owed. */
  begins(instance: number): void {
    this.#results.settled(instance);
  }

  /** A frame of that relay is in the round. */
  take(instance: number, round: number): void {
    this.#returns.take(instance, round);
  }

  /** A round has closed; see {@link Results.keep}. */
  closed(round: number, record: Bytes, other: SlotReader | undefined): SlotReader {
    return this.#results.keep(round, record, this.#returns.inRound(round), other);
  }

  /** Sends the result of the last round that a relay was in. */
  async sendLate(port: RelayPort): Promise<void> {
    const round = this.#returns.lastRound(port.instance!);
    if (round === undefined) return;
    await this.#results.send(round, (record) => port.sendResult(record, round));
  }

  /** A relay is lost with ranks that it carried. */
  lost(instance: number): void {
    if (this.#waitMs === 0) return this.#results.settled(instance);
    const timer = setTimeout(() => {
      this.#missing.delete(instance);
      this.#results.settled(instance);
      this.#givenUp();
    }, this.#waitMs);
    this.#missing.set(instance, timer);
  }

  /** A relay has ended, with nobody left behind it. */
  done(instance: number): void {
    this.#results.settled(instance);
  }

  /** Nobody is waited for any more. */
  close(): void {
    for (const timer of this.#missing.values()) clearTimeout(timer);
    this.#missing.clear();
  }
}

/** Why a relay cannot go on where it was. */
export const LOST =
  "the round of the host's last frame has closed, and its result is gone: its ranks must " +
  "connect anew";
