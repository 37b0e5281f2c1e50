/**
 * When the frames of a round came, and by how much the last one was late. The same account serves the
 * relay, whose members are ranks, and the controller, whose members are hosts.
 *
 * @module
 */

/** One member's frame in a round; times in milliseconds after the round's first byte. */
export interface FrameArrival {
  readonly member: number;
  /** When its first byte was there. */
  readonly beganMs: number;
  /** When it was whole and verified. */
  readonly arrivedMs: number;
}

/** How a round's frames came. */
export interface RoundArrivals {
  /** When the round's first byte came, on the clock of the calls. */
  readonly startedAtMs: number;
  /** In the order of arrival, the first one first. */
  readonly frames: readonly FrameArrival[];
  /** How long the last frame was there after the first one, in milliseconds; 0 for one frame. */
  readonly lagMs: number;
  /** How long it was there after the median one: of an even number, the earlier one of the middle. */
  readonly lagOfMedianMs: number;
}

/** Takes down a round's arrivals. Purely synchronous; time comes in as an argument. */
export class ArrivalLog {
  #startedAtMs: number | undefined;
  readonly #began = new Map<number, number>();
  readonly #arrived = new Map<number, number>();

  /** When the round's first byte came; undefined while none has. */
  get startedAtMs(): number | undefined {
    return this.#startedAtMs;
  }

  /** Members whose frame is there, in the order of arrival. */
  get delivered(): number[] {
    return [...this.#arrived.keys()];
  }

  /** Whether a member's frame is on its way. */
  arriving(member: number): boolean {
    return this.#began.has(member) && !this.#arrived.has(member);
  }

  /** The first byte of a member's frame is there. */
  begins(member: number, nowMs: number): void {
    this.#startedAtMs ??= nowMs;
    this.#began.set(member, nowMs);
  }

  /** A member's frame is whole and verified. */
  arrives(member: number, nowMs: number): void {
    if (!this.#began.has(member)) this.begins(member, nowMs);
    this.#arrived.set(member, nowMs);
  }

  /** A member's frame is not of this round, or no longer. */
  forget(member: number): void {
    this.#began.delete(member);
    this.#arrived.delete(member);
  }

  /** Ends the round and gives its account; the next one begins without any frame. */
  close(): RoundArrivals {
    const startedAtMs = this.#startedAtMs ?? 0;
    const frames = [...this.#arrived].map(([member, at]) => ({
      member,
      beganMs: this.#began.get(member)! - startedAtMs,
      arrivedMs: at - startedAtMs,
    })).sort((a, b) => a.arrivedMs - b.arrivedMs);
    this.#startedAtMs = undefined;
    for (const member of this.#arrived.keys()) this.#began.delete(member);
    this.#arrived.clear();
    // A quick member's next frame may be on its way when the round ends.
    for (const at of this.#began.values()) {
      this.#startedAtMs = Math.min(this.#startedAtMs ?? at, at);
    }
    const at = (index: number) => frames[index]?.arrivedMs ?? 0;
    const last = at(frames.length - 1);
    return {
      startedAtMs,
      frames,
      lagMs: last - at(0),
      lagOfMedianMs: last - at(Math.floor((frames.length - 1) / 2)),
    };
  }
}
