/**
 * What the last rounds have in common.
 *
 * @module
 */
import type { HostView, RoundView, StateDocument } from "../../../observe/state.ts";

/** The value below which that part of the values lies; undefined of none. */
export function quantile(values: readonly number[], part: number): number | undefined {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(part * sorted.length))];
}

/** The middle one; undefined of none. */
export function median(values: readonly number[]): number | undefined {
  return quantile(values, 0.5);
}

/** How a host was in the last rounds. */
export interface Pace {
  readonly host: HostView;
  /** Rounds in which its frame was accepted. */
  readonly rounds: number;
  /** How long after the first host's its frame was there, the median, in milliseconds. */
  readonly behindMs: number | undefined;
  /** Rounds in which it was the last of several. */
  readonly last: number;
  /** How often its ranks were given up because they were late. */
  readonly late: number;
}

/** Every host's pace, by key. */
export function paces({ hosts, rounds, ranks }: StateDocument): Pace[] {
  return hosts.map((host) => {
    const behind: number[] = [];
    let last = 0;
    for (const { arrivals } of rounds) {
      const place = arrivals.findIndex(({ key }) => key === host.key);
      if (place < 0) continue;
      behind.push(arrivals[place]!.arrivedMs - arrivals[0]!.arrivedMs);
      if (arrivals.length > 1 && place === arrivals.length - 1) last++;
    }
    const late = ranks.filter((rank) => rank.host === host.name)
      .reduce((sum, { timesLate }) => sum + timesLate, 0);
    return { host, rounds: behind.length, behindMs: median(behind), last, late };
  });
}

/** Rounds that closed in the last minute, or undefined where they are too few to tell. */
export function roundsPerMinute(rounds: readonly RoundView[]): number | undefined {
  const first = rounds.at(-Math.min(rounds.length, 60));
  const last = rounds.at(-1);
  if (first === undefined || last === undefined || first === last) return undefined;
  const ms = last.startedAtMs - first.startedAtMs;
  return ms <= 0 ? undefined : (last.round - first.round) * 60_000 / ms;
}

/** Where a scale for values ends: above all of them, but for a few that would flatten the others. */
export function ceiling(values: readonly number[]): number {
  const most = Math.max(0, ...values);
  const usual = quantile(values, 0.95) ?? 0;
  const top = most > 3 * usual ? 1.5 * usual : 1.1 * most;
  return top > 0 ? top : most > 0 ? 1.1 * most : 1;
}
