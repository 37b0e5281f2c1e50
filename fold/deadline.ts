/**
 * How long a round waits for the late: a fixed time, or one that follows recent rounds.
 *
 * @module
 */
import { invariant } from "../wire/errors.ts";
import type { RoundKind } from "../wire/round_frame.ts";

/** How to wait; times in milliseconds. */
export interface DeadlineOptions {
  /** The deadline itself, or the most that an adaptive one comes to. */
  readonly capMs: number;
  /** The least that an adaptive deadline comes to; undefined: the deadline is fixed. */
  readonly floorMs?: number | undefined;
}

/** Rounds of each kind that are remembered. */
const WINDOW = 64;
/** Rounds of a kind that must have closed before its deadline is below the cap. */
const LEAST_ROUNDS = 8;
/** How many times the usual spread a round waits. */
const FACTOR = 4;
/** The share of remembered rounds that the usual spread covers. */
const SHARE = 0.95;

/** One round's spread. */
interface Spread {
  readonly ms: number;
  /** Whether it is the deadline that the round ran into. */
  readonly missed: boolean;
}

/**
 * The deadline of rounds, from the round's first frame.
 *
 *             fewer than 8 rounds: cap
 *                       |
 *                 8 rounds closed
 *                       v
 *             clamp(floor, 4 x q, cap) <----+   q: the 95th percentile (nearest rank) of the spreads
 *                       |                   |   of the last 64 rounds of this kind
 *                       +-- round closed ---+
 *
 * A round's spread is the time from its first frame to its last one. A round that ran into its deadline
 * counts with that deadline as its spread, and until the window has forgotten it, such spreads count
 * whatever their share: the next deadline is at least 4 times as long, and after a few in a row it is the
 * cap. So a cluster that becomes slow at once loses its slow members once or twice, not for ever.
 *
 * Rounds of different kinds (averages after an epoch, small sums in between) have their own windows.
 * Purely synchronous, without a clock.
 */
export class RoundDeadline {
  readonly #options: DeadlineOptions;
  readonly #windows = new Map<RoundKind, Spread[]>();

  constructor(options: DeadlineOptions) {
    const { capMs, floorMs } = options;
    invariant(floorMs === undefined || floorMs <= capMs, `a floor of ${floorMs} above ${capMs} ms`);
    this.#options = options;
  }

  /** The one that a relay or controller is told of. */
  static of(
    settings: { roundDeadlineMs: number; deadlineFloorMs?: number | undefined },
  ): RoundDeadline {
    return new RoundDeadline({
      capMs: settings.roundDeadlineMs,
      floorMs: settings.deadlineFloorMs,
    });
  }

  /** Whether it follows recent rounds. */
  get adaptive(): boolean {
    return this.#options.floorMs !== undefined;
  }

  /** The least it comes to, in milliseconds. */
  get floorMs(): number {
    return this.#options.floorMs ?? this.#options.capMs;
  }

  /** The most it comes to, in milliseconds. */
  get capMs(): number {
    return this.#options.capMs;
  }

  /** How long a round of that kind waits after its first frame, in milliseconds. */
  after(kind: RoundKind): number {
    const { capMs, floorMs } = this.#options;
    const window = this.#windows.get(kind) ?? [];
    if (floorMs === undefined || window.length < LEAST_ROUNDS) return capMs;
    const ordered = window.map(({ ms }) => ms).sort((a, b) => a - b);
    const usual = ordered[Math.ceil(SHARE * ordered.length) - 1]!;
    const missed = window.map(({ ms, missed }) => missed ? ms : 0);
    return Math.min(Math.max(FACTOR * Math.max(usual, ...missed), floorMs), capMs);
  }

  /**
   * A round closed.
   *
   * @param spreadMs The time from its first frame to its last one.
   * @param missedMs The deadline that it ran into; undefined when everybody came in time.
   */
  closed(kind: RoundKind, spreadMs: number, missedMs?: number): void {
    if (!this.adaptive) return;
    let window = this.#windows.get(kind);
    if (window === undefined) this.#windows.set(kind, window = []);
    window.push({ ms: missedMs ?? spreadMs, missed: missedMs !== undefined });
    if (window.length > WINDOW) window.shift();
  }
}
