/**
 * Ranks as those see them who watch.
 *
 * @module
 */
import type { RankView } from "./state.ts";

type Mutable<T> = { -readonly [Key in keyof T]: T[Key] };
type Entry = Omit<Mutable<RankView>, "loss">;

/** Where every rank stands, and why. Purely synchronous; time comes in as an argument. */
export class Roster {
  readonly #ranks: ReadonlyMap<number, Entry>;
  #deaths = 0;
  #returns = 0;
  #late = 0;

  /** @param ranks Those that are expected, ascending. */
  constructor(ranks: Iterable<number>, nowMs: number) {
    this.#ranks = new Map(Array.from(ranks, (rank) => [rank, {
      rank,
      phase: "expected",
      sinceAtMs: nowMs,
      host: null,
      reason: null,
      returns: 0,
      timesLate: 0,
    }]));
  }

  /** How often a rank was lost, came back, and was given up because it was late. */
  get totals(): { deaths: number; returns: number; late: number } {
    return { deaths: this.#deaths, returns: this.#returns, late: this.#late };
  }

  /** All ranks, by number. */
  all(): Entry[] {
    return [...this.#ranks.values()].map((entry) => ({ ...entry }));
  }

  /** The ranks that stand there, ascending. */
  those(phase: RankView["phase"]): number[] {
    return [...this.#ranks.values()].filter((entry) => entry.phase === phase).map(({ rank }) =>
      rank
    );
  }

  /** These ranks are carried by the relay of `host`. */
  carried(host: string, ranks: readonly number[], nowMs: number): void {
    for (const entry of this.#entries(ranks)) {
      if (entry.phase === "left" || entry.phase === "lost") {
        entry.returns++;
        this.#returns++;
      }
      Object.assign(entry, { phase: "live", host, reason: null, sinceAtMs: nowMs });
    }
  }

  /** These ranks are gone. */
  gone(ranks: readonly number[], phase: "left" | "lost", reason: string, nowMs: number): void {
    for (const entry of this.#entries(ranks)) {
      if (phase === "lost" && entry.phase !== "lost") this.#deaths++;
      Object.assign(entry, { phase, reason, sinceAtMs: nowMs });
    }
  }

  /** These ranks are given up because they are late. */
  late(ranks: readonly number[]): void {
    for (const entry of this.#entries(ranks)) {
      entry.timesLate++;
      this.#late++;
    }
  }

  #entries(ranks: readonly number[]): Entry[] {
    return ranks.flatMap((rank) => this.#ranks.get(rank) ?? []);
  }
}
