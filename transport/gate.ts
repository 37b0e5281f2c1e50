/**
 * Who may come in: limits on connections whose other end has not said who it is. Pure: connections are
 * numbers here, and time comes in as an argument.
 *
 * @module
 */

/** What a gate allows. */
export interface GateLimits {
  /** Connections at once. */
  connections: number;
  /** Strangers at once: connections whose other end has not said who it is. */
  strangers: number;
  /** Strangers at once from one address. */
  strangersPerAddress: number;
  /** New connections from one address in a second, on average. */
  acceptRate: number;
}

/**
 * What relays and controllers allow unless told otherwise. All ranks of a host come from one address, and
 * so do all relays of a machine that plays many hosts: 256 at once are no flood.
 */
export const GATE_LIMITS: GateLimits = {
  connections: 4096,
  strangers: 1024,
  strangersPerAddress: 512,
  acceptRate: 64,
};

/** For so many seconds' worth of connections at once an address is not held back. */
export const BURST_SECONDS = 16;
/** Most addresses whose rate is remembered; those that have been quiet the longest are forgotten first. */
const MOST_ADDRESSES = 8192;

/** What becomes of a new connection. */
export type Verdict =
  /** It comes in; `evict` is the stranger that must go for it. */
  | { readonly admitted: true; readonly evict: number | undefined }
  | { readonly admitted: false; readonly reason: string };

/** A token bucket: it fills with time, a connection takes one. */
interface Bucket {
  tokens: number;
  at: number;
}

/**
 * The gate.
 *
 *     arrive --admitted--> stranger --welcome--> known
 *        |                    |  |                 |
 *      refused            leave  evicted         leave
 *
 * When strangers are too many, the oldest goes, and not the new one: who means it says who it is within
 * milliseconds, and is not the oldest for long.
 */
export class Gate {
  readonly #limits: GateLimits;
  readonly #strangers = new Map<number, string>();
  readonly #byAddress = new Map<string, Set<number>>();
  readonly #buckets = new Map<string, Bucket>();
  #connections = 0;

  constructor(limits: GateLimits) {
    this.#limits = limits;
  }

  /** Connections that are in, known or not. */
  get connections(): number {
    return this.#connections;
  }

  /** Connections whose other end has not said who it is. */
  get strangers(): number {
    return this.#strangers.size;
  }

  /**
   * A connection came. An evicted one still has to {@link leave}.
   *
   * @param id Its number, each once.
   * @param address Where from, without the port.
   * @param now In milliseconds, from any start, never backwards.
   */
  arrive(id: number, address: string, now: number): Verdict {
    const { connections, strangers, strangersPerAddress, acceptRate } = this.#limits;
    if (!this.#take(address, now)) {
      return refuse(`more than ${acceptRate} connections a second came from ${address}`);
    }
    const own = this.#byAddress.get(address);
    let evict: number | undefined;
    if (own !== undefined && own.size >= strangersPerAddress) evict = first(own);
    else if (this.#strangers.size >= strangers || this.#connections >= connections) {
      evict = first(this.#strangers.keys());
      if (evict === undefined) return refuse(`there are ${connections} connections already`);
    }
    if (evict !== undefined) this.#forget(evict);
    this.#connections++;
    this.#strangers.set(id, address);
    if (own === undefined || !this.#byAddress.has(address)) {
      this.#byAddress.set(address, new Set([id]));
    } else own.add(id);
    return { admitted: true, evict };
  }

  /** The other end has said who it is. */
  welcome(id: number): void {
    this.#forget(id);
  }

  /** A connection that was admitted is closed. */
  leave(id: number): void {
    this.#forget(id);
    this.#connections--;
  }

  #forget(id: number): void {
    const address = this.#strangers.get(id);
    if (address === undefined) return;
    this.#strangers.delete(id);
    const own = this.#byAddress.get(address)!;
    own.delete(id);
    if (own.size === 0) this.#byAddress.delete(address);
  }

  #take(address: string, now: number): boolean {
    const { acceptRate } = this.#limits;
    const most = acceptRate * BURST_SECONDS;
    const bucket = this.#buckets.get(address) ?? { tokens: most, at: now };
    bucket.tokens = Math.min(most, bucket.tokens + (now - bucket.at) / 1000 * acceptRate);
    bucket.at = now;
    // Put in anew, it is the last to be forgotten.
    this.#buckets.delete(address);
    this.#buckets.set(address, bucket);
    if (this.#buckets.size > MOST_ADDRESSES) this.#buckets.delete(first(this.#buckets.keys())!);
    if (bucket.tokens < 1) return false;
    bucket.tokens--;
    return true;
  }
}

function refuse(reason: string): Verdict {
  return { admitted: false, reason };
}

function first<T>(values: Iterable<T>): T | undefined {
  for (const value of values) return value;
  return undefined;
}
