/**
 * Which relay carries which ranks.
 *
 * @module
 */
import { WireError } from "../wire/errors.ts";

/**
 * Where a rank stands.
 *
 *     unclaimed --Hello--> carried --RankExit, relay lost--> gone --Hello--> carried
 *         |                                                    ^
 *         +------------------ given up ------------------------+
 */
export type RankState = "unclaimed" | "carried" | "gone";

/** A relay as the session knows it. */
export interface Host {
  /** The number by which hosts are ordered: the lowest rank of its first Hello. */
  readonly key: number;
  readonly name: string;
  /** Ranks it carries now. */
  readonly ranks: Set<number>;
  /** Whether all of them take results that carry bf16. */
  narrow: boolean;
}

/** The session's ranks and hosts. Purely synchronous. */
export class Membership {
  readonly #states: RankState[];
  readonly #hosts = new Map<number, Host>();

  /** @param worldSize How many ranks the session has. */
  constructor(worldSize: number) {
    this.#states = Array.from({ length: worldSize }, () => "unclaimed" as const);
  }

  /** How many ranks the session has. */
  get worldSize(): number {
    return this.#states.length;
  }

  /** Where a rank stands. */
  state(rank: number): RankState | undefined {
    return this.#states[rank];
  }

  /** Ranks that no relay has claimed and nobody gave up. */
  get unclaimed(): number[] {
    return this.#with("unclaimed");
  }

  /** Ranks that a relay carries. */
  get carried(): number[] {
    return this.#with("carried");
  }

  /** Connected hosts, in the order in which they are folded. */
  get hosts(): Host[] {
    return [...this.#hosts.values()].sort((a, b) => a.key - b.key);
  }

  /** The connected host of that number. */
  host(key: number): Host | undefined {
    return this.#hosts.get(key);
  }

  /**
   * Takes a relay in.
   *
   * @param key The number by which its host is ordered; its lowest rank when left out.
   * @throws {WireError} when a rank is not of this world, or another live relay carries it.
   */
  claim(name: string, ranks: readonly number[], key: number | undefined = ranks[0]): Host {
    if (key === undefined) {
      throw new WireError(
        "membership",
        "connection",
        `Hello of host ${JSON.stringify(name)}: it carries no rank`,
      );
    }
    this.#expectFree(name, ranks, undefined);
    const other = this.#hosts.get(key);
    if (other !== undefined) {
      throw new WireError(
        "membership",
        "connection",
        `Hello of host ${JSON.stringify(name)}: its lowest rank ${key} has left host ` +
          `${
            JSON.stringify(other.name)
          }, which is still connected and counts as the host of that rank`,
      );
    }
    const host: Host = { key, name, ranks: new Set(ranks), narrow: false };
    this.#hosts.set(key, host);
    for (const rank of ranks) this.#states[rank] = "carried";
    return host;
  }

  /**
   * A relay says anew what it carries, since a rank came back.
   *
   * @returns The ranks that came back.
   * @throws {WireError} as {@link Membership.claim} does.
   */
  renew(host: Host, ranks: readonly number[]): number[] {
    this.#expectFree(host.name, ranks, host);
    const back = ranks.filter((rank) => !host.ranks.has(rank));
    for (const rank of back) {
      host.ranks.add(rank);
      this.#states[rank] = "carried";
    }
    return back;
  }

  /**
   * A rank of `host` has left.
   *
   * @throws {WireError} when that host does not carry it.
   */
  exit(host: Host, rank: number): void {
    if (!host.ranks.delete(rank)) {
      throw new WireError(
        "membership",
        "connection",
        `RankExit of host ${JSON.stringify(host.name)}: it does not carry rank ${rank}`,
      );
    }
    this.#states[rank] = "gone";
  }

  /** A relay is lost, and with it the ranks it still carried, which are returned. */
  release(host: Host): number[] {
    const lost = [...host.ranks];
    for (const rank of lost) this.#states[rank] = "gone";
    host.ranks.clear();
    this.#hosts.delete(host.key);
    return lost;
  }

  /** Stops waiting for ranks that nobody claimed; returns them. */
  giveUpUnclaimed(): number[] {
    const { unclaimed } = this;
    for (const rank of unclaimed) this.#states[rank] = "gone";
    return unclaimed;
  }

  #with(wanted: RankState): number[] {
    return this.#states.flatMap((state, rank) => state === wanted ? [rank] : []);
  }

  #expectFree(name: string, ranks: readonly number[], self: Host | undefined): void {
    for (const rank of ranks) {
      const refuse = (text: string) =>
        new WireError(
          "membership",
          "connection",
          `Hello of host ${JSON.stringify(name)}: rank ${rank} ${text}`,
        );
      if (rank >= this.worldSize) {
        throw refuse(`is not below the world size ${this.worldSize} of this session`);
      }
      const other = this.hosts.find((host) => host !== self && host.ranks.has(rank));
      if (other !== undefined) {
        throw refuse(`is carried by host ${JSON.stringify(other.name)} already`);
      }
    }
  }
}
