/**
 * The clock of a server's rounds: when frames came, and when it is too late for the rest.
 *
 * @module
 */
import { ArrivalLog, type RoundArrivals } from "../fold/arrivals.ts";
import type { RoundDeadline } from "../fold/deadline.ts";
import type { RoundKind } from "../wire/round_frame.ts";

/** How a round went. */
export interface TimedRound extends RoundArrivals {
  /** The deadline that held for it, after its first frame, in milliseconds. */
  readonly deadlineMs: number;
  /** Whether it ran into it. */
  readonly missed: boolean;
}

/**
 * Times one round after another.
 *
 *     idle --start--> running --deadline: missed is called--> missed
 *      ^                 |                                      |
 *      +----- close -----+---------------- close ---------------+
 */
export class RoundClock {
  readonly #deadline: RoundDeadline;
  readonly #missed: (deadlineMs: number) => void;
  readonly #arrivals = new ArrivalLog();
  #timer: ReturnType<typeof setTimeout> | undefined;
  #deadlineMs: number | undefined;
  #late = false;

  /** @param missed Called when the deadline of a round is over. */
  constructor(deadline: RoundDeadline, missed: (deadlineMs: number) => void) {
    this.#deadline = deadline;
    this.#missed = missed;
  }

  /** When the round's first byte came, as performance.now() tells time; undefined while none has. */
  get startedAtMs(): number | undefined {
    return this.#arrivals.startedAtMs;
  }

  /** The first byte of a member's frame is there. */
  begins(member: number): void {
    this.#arrivals.begins(member, performance.now());
  }

  /** A member's frame is whole and verified. */
  arrives(member: number): void {
    this.#arrivals.arrives(member, performance.now());
  }

  /** A member left: a frame of it that was on its way does not come any more. */
  leaves(member: number): void {
    if (this.#arrivals.arriving(member)) this.#arrivals.forget(member);
  }

  /** Lets the deadline of a round run, unless it runs already. */
  start(kind: RoundKind): void {
    if (this.#deadlineMs !== undefined) return;
    const deadlineMs = this.#deadlineMs = this.#deadline.after(kind);
    this.#timer = setTimeout(() => {
      this.#late = true;
      this.#missed(deadlineMs);
    }, deadlineMs);
  }

  /** Nothing more is waited for: the deadline does not count any more. */
  stop(): void {
    clearTimeout(this.#timer);
  }

  /**
   * The round is over.
   *
   * @returns How it went, and the deadline that held for it.
   */
  close(kind: RoundKind): TimedRound {
    this.stop();
    const arrivals = this.#arrivals.close();
    const deadlineMs = this.#deadlineMs ?? this.#deadline.after(kind);
    const missed = this.#late;
    // A round that is sent once more has had its arrivals.
    if (arrivals.frames.length > 0) {
      this.#deadline.closed(kind, arrivals.lagMs, missed ? deadlineMs : undefined);
    }
    this.#deadlineMs = undefined;
    this.#late = false;
    return { ...arrivals, deadlineMs, missed };
  }
}
