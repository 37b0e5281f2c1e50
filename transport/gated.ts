/**
 * A network behind a gate: connections over its limits are closed at once.
 *
 * @module
 */
import type { Connection } from "./connection.ts";
import { Gate, type GateLimits } from "./gate.ts";
import type { Listener, Network } from "./network.ts";
import type { Address } from "./tcp.ts";

/** Connections that were not let in, or put out for others, since the last report. */
export interface Refusals {
  readonly count: number;
  /** The address of the last one, with its port, and why. */
  readonly last: string;
}

/** Between two reports of refused connections, in milliseconds: a flood must not fill a log. */
const REPORT_MS = 10_000;

/**
 * Puts a gate in front of what `below` accepts; connecting is not limited.
 *
 * @param report Told of refused connections, of the first at once, then every 10 s.
 */
export function gated(
  below: Network,
  limits: GateLimits,
  report: (refusals: Refusals) => void,
): Network {
  return {
    listen: (address) => new GatedListener(below.listen(address), new Gate(limits), report),
    connect: below.connect,
  };
}

class GatedListener implements Listener {
  readonly #below: Listener;
  readonly #gate: Gate;
  readonly #report: (refusals: Refusals) => void;
  readonly #inside = new Map<number, GatedConnection>();
  #next = 0;
  #refused = 0;
  #last = "";
  #timer: ReturnType<typeof setTimeout> | undefined;

  constructor(below: Listener, gate: Gate, report: (refusals: Refusals) => void) {
    this.#below = below;
    this.#gate = gate;
    this.#report = report;
  }

  get address(): Address {
    return this.#below.address;
  }

  async accept(
    serve: (connection: Connection) => void,
    onError: (error: Error) => void,
  ): Promise<void> {
    await this.#below.accept((connection) => {
      const id = this.#next++;
      const { peer } = connection;
      const host = peer.slice(0, peer.lastIndexOf(":"));
      const verdict = this.#gate.arrive(id, host, performance.now());
      if (!verdict.admitted) {
        connection.close();
        this.#tell(peer, verdict.reason);
        return;
      }
      if (verdict.evict !== undefined) {
        const evicted = this.#inside.get(verdict.evict)!;
        this.#tell(evicted.peer, "it had not said who it is when too many others came");
        evicted.close();
      }
      const inside = new GatedConnection(connection, this.#gate, id, () => this.#inside.delete(id));
      this.#inside.set(id, inside);
      serve(inside);
    }, onError);
  }

  close(): void {
    this.#below.close();
    clearTimeout(this.#timer);
    this.#timer = undefined;
  }

  #tell(peer: string, reason: string): void {
    this.#refused++;
    this.#last = `${peer}: ${reason}`;
    if (this.#timer !== undefined) return;
    this.#flush();
    this.#watch();
  }

  #watch(): void {
    this.#timer = setTimeout(() => {
      this.#timer = undefined;
      if (this.#refused === 0) return;
      this.#flush();
      this.#watch();
    }, REPORT_MS);
  }

  #flush(): void {
    this.#report({ count: this.#refused, last: this.#last });
    this.#refused = 0;
  }
}

class GatedConnection implements Connection {
  readonly #below: Connection;
  readonly #gate: Gate;
  readonly #id: number;
  readonly #gone: () => void;
  #closed = false;

  constructor(below: Connection, gate: Gate, id: number, gone: () => void) {
    this.#below = below;
    this.#gate = gate;
    this.#id = id;
    this.#gone = gone;
  }

  get peer(): string {
    return this.#below.peer;
  }

  read(into: Uint8Array): Promise<number | null> {
    return this.#below.read(into);
  }

  write(bytes: Uint8Array): Promise<number> {
    return this.#below.write(bytes);
  }

  closeWrite(): Promise<void> {
    return this.#below.closeWrite();
  }

  welcome(): void {
    this.#gate.welcome(this.#id);
  }

  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#below.close();
    this.#gate.leave(this.#id);
    this.#gone();
  }
}
