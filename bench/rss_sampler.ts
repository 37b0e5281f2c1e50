/**
 * Watches the resident memory of processes over time.
 *
 * @module
 */

import type { Member } from "./contender.ts";
import { mean, significant } from "./figures.ts";
import { memory } from "./proc.ts";

/** Resident memory at one moment: the mean over the processes of a role, in MB. */
export interface RssSample {
  /** Seconds since the start. */
  t_s: number;
  /** Mean resident memory by role, in MB. */
  rss_mb: Record<string, number>;
}

/** How the memory of one role's processes went. */
export interface RssTrend {
  /** How many processes. */
  processes: number;
  /** Mean over the second fifth of the time, in MB: after start-up and the first allocations. */
  early_mb: number;
  /** Mean over the last fifth, in MB. */
  late_mb: number;
  /** The largest peak of any of them, in MB. */
  peak_mb: number;
}

/** Samples until it is stopped. */
export class RssSampler {
  readonly #members: readonly Member[];
  readonly #start = performance.now();
  readonly #timer: ReturnType<typeof setInterval>;
  readonly #samples: RssSample[] = [];

  /** Starts sampling the processes, which must live until {@link stop}. */
  constructor(members: readonly Member[], periodMs: number) {
    this.#members = members;
    this.#timer = setInterval(() => this.#sample(), periodMs);
  }

  #sample(): void {
    const rss_mb: Record<string, number> = {};
    for (const role of this.#roles()) {
      const values = this.#of(role).map(({ child }) => memory(child.pid).rss_mb);
      rss_mb[role] = significant(mean(values));
    }
    this.#samples.push({ t_s: significant((performance.now() - this.#start) / 1e3), rss_mb });
  }

  #roles(): string[] {
    return [...new Set(this.#members.map(({ role }) => role))];
  }

  #of(role: string): Member[] {
    return this.#members.filter((member) => member.role === role);
  }

  /** Ends the sampling, with a last sample, and says how each role went. */
  stop(): { samples: RssSample[]; trends: Record<string, RssTrend> } {
    clearInterval(this.#timer);
    this.#sample();
    const trends: Record<string, RssTrend> = {};
    const count = this.#samples.length;
    const part = (role: string, from: number, to: number) => {
      const first = Math.min(count - 1, Math.floor(count * from));
      const of = this.#samples.slice(first, Math.max(first + 1, Math.ceil(count * to)));
      return significant(mean(of.map((sample) => sample.rss_mb[role] ?? NaN)));
    };
    for (const role of this.#roles()) {
      const members = this.#of(role);
      trends[role] = {
        processes: members.length,
        early_mb: part(role, 0.2, 0.4),
        late_mb: part(role, 0.8, 1),
        peak_mb: significant(Math.max(...members.map(({ child }) => memory(child.pid).peak_mb))),
      };
    }
    return { samples: this.#samples, trends };
  }
}
