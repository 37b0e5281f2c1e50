/**
 * The ranks of a session as those see them who watch.
 *
 * @module
 */
import type { RankView } from "../../observe/state.ts";

type Mutable<T> = { -readonly [Key in keyof T]: T[Key] };
type Entry = Omit<Mutable<RankView>, "loss">;

/** Where every rank stands, and why. Purely synchronous; time comes in as an argument. */
export class Roster {
  readonly #ranks: Entry[];
  #deaths = 0;
  #returns = 0;
  #late = 0;

  constructor(worldSize: number, nowMs: number) {
    this.#ranks = Array.from({ length: worldSize }, (_, rank) => ({
      rank,
      phase: "expected",
      sinceAtMs: nowMs,
      host: null,
      reason: null,
      returns: 0,
      timesLate: 0,
    }));
  }

  /** How often a rank was lost, came back, and was given up because it was late. */
  get totals(): { deaths: number; returns: number; late: number } {
    return { deaths: this.#deaths, returns: this.#returns, late: this.#late };
  }

  /** All ranks, by number. */
  all(): Entry[] {
    return this.#ranks.map((entry) => ({ ...entry }));
  }

  /** Where a rank stands; undefined for one that is not of this session. */
  phase(rank: number): RankView["phase"] | undefined {
    return this.#ranks[rank]?.phase;
  }

  /** The ranks that stand there, ascending. */
  those(phase: RankView["phase"]): number[] {
    return this.#ranks.flatMap((entry) => entry.phase === phase ? [entry.rank] : []);
  }

  /** A relay carries these ranks. */
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
    return ranks.flatMap((rank) => this.#ranks[rank] ?? []);
  }
}
