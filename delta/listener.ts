/**
 * Receives DWE fragments over TCP and keeps weights that follow them.
 *
 * @module
 */
import { getLogger } from "@logtape/logtape";
import { Breather } from "../transport/breather.ts";
import { type Connection, TransportError } from "../transport/connection.ts";
import { Link } from "../transport/link.ts";
import { type Address, TcpListener } from "../transport/tcp.ts";
import { checkDweLength, DWE_LENGTH_BYTES, DweError } from "../wire/dwe.ts";
import { DeltaFollower, type FollowedRound } from "./follower.ts";
import type { KeyRing } from "./keys.ts";
import type { DweTelemetry } from "./telemetry.ts";
import type { LiveLayer } from "./weights.ts";

const log = getLogger(["tierfold", "delta"]);

/** What a fragment's buffer starts with; it grows with the bytes that really come. */
const FIRST_BUFFER_BYTES = 64 * 1024;
/** How long a fragment may take once its length has come, in milliseconds. */
const FRAGMENT_MS = 30_000;
/** How long a sender may be silent between fragments, in milliseconds. */
const SILENCE_MS = 15 * 60_000;
/** How long a reply may take, in milliseconds. */
const REPLY_MS = 10_000;
/** Refusals told in the log: so many at once, then one each so many milliseconds. */
const LOGGED_REFUSALS = 10;
const REFUSAL_LOG_MS = 5_000;

/** How a {@link DeltaListener} works. */
export interface DeltaListenerOptions {
  /** Where to listen; port 0 takes a free one. */
  readonly listen: Address;
  /** The fleet's keys, asked for every fragment: see KeyRing. */
  readonly ring: Pick<KeyRing, "keys">;
  /** Must be true to run without any key, when every sender that reaches the port is believed. */
  readonly allowUnsigned?: boolean;
  /**
   * Weights to which the changes of every believed sender are added in place, as plain DWE does.
   * Without them the listener is a replica of one Tierfold publisher and asks it for a snapshot.
   */
  readonly layers?: readonly LiveLayer[];
  /** Told when a replica has a consensus whole; the layers stay as they are until it returns. */
  readonly onRound?: (round: FollowedRound, layers: readonly LiveLayer[]) => void;
  /** Most connections at once, 16 unless given; each may hold one fragment of up to 8 MiB. */
  readonly maxConnections?: number;
  /** Most bytes of weights in a snapshot; 1 GiB unless given. */
  readonly maxModelBytes?: number;
}

interface Guest {
  readonly link: Link;
  /** Whether it has sent anything authentic. */
  known: boolean;
}

/**
 * Listens for DWE fragments. Refused are unsigned, tampered, oversized, repeated and out-of-order ones;
 * a sender of bytes that are not of the fleet loses its connection. When all connections are taken,
 * the oldest that has sent nothing authentic makes room.
 */
export class DeltaListener {
  readonly #options: DeltaListenerOptions;
  readonly #listener: TcpListener;
  readonly #follower: DeltaFollower;
  readonly #guests = new Set<Guest>();
  readonly #serving = new Set<Promise<void>>();
  readonly #accepting: Promise<void>;
  readonly #ready = Promise.withResolvers<void>();
  #refusals = 0;
  #refusalLoggedAt = 0;
  #closed = false;

  private constructor(options: DeltaListenerOptions, listener: TcpListener) {
    this.#options = options;
    this.#listener = listener;
    this.#follower = new DeltaFollower({
      ring: options.ring,
      layers: options.layers,
      maxBytes: options.maxModelBytes,
    });
    // Nobody may be waiting for it.
    this.#ready.promise.catch(() => {});
    this.#accepting = listener.accept(
      (connection) => this.#admit(connection),
      (error) => log.error("accepting a DWE sender: {error}; trying again", { error }),
    );
  }

  /**
   * Starts to listen.
   *
   * @throws {TransportError} with code "unreachable" when the address cannot be had.
   * @throws {DweError} with code "Unsigned" when there is no key and allowUnsigned is not set.
   */
  static listen(options: DeltaListenerOptions): DeltaListener {
    const { current, previous } = options.ring.keys();
    if (current === undefined && previous === undefined && options.allowUnsigned !== true) {
      throw new DweError(
        "Unsigned",
        "listening for DWE fragments: there is no fleet key, so anyone could change the weights; set " +
          "AXIOM_FLEET_KEY, or allow unsigned fragments",
      );
    }
    return new DeltaListener(options, TcpListener.listen(options.listen));
  }

  /** Where it listens, with the real port. */
  get address(): Address {
    return this.#listener.address;
  }

  /** The weights; of a replica none before the first snapshot, and other objects after each one. */
  get layers(): readonly LiveLayer[] {
    return this.#follower.layers;
  }

  /** The consensus that a replica has whole; undefined before the first one. */
  get version(): { readonly sid: string; readonly version: number } | undefined {
    return this.#follower.version;
  }

  /** Settles when a replica has its first consensus; rejects when the listener is closed before. */
  get ready(): Promise<void> {
    return this.#ready.promise;
  }

  /** Counters, and what came last. */
  get telemetry(): Readonly<DweTelemetry> {
    return this.#follower.telemetry;
  }

  /** Connections at the moment. */
  get connections(): number {
    return this.#guests.size;
  }

  /** Closes all connections and stops listening. */
  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    this.#listener.close();
    for (const { link } of this.#guests) link.close();
    await this.#accepting;
    await Promise.all(this.#serving);
    this.#ready.reject(new TransportError("ended", "the delta listener was closed"));
  }

  #admit(connection: Connection): void {
    const guest: Guest = { link: new Link(connection), known: false };
    if (this.#guests.size >= (this.#options.maxConnections ?? 16)) {
      const stranger = [...this.#guests].find(({ known }) => !known);
      if (stranger === undefined) {
        this.#logRefusal(guest.link.peer, "all connections are taken by senders of the fleet");
        guest.link.close();
        return;
      }
      this.#guests.delete(stranger);
      stranger.link.close(
        new TransportError("ended", "it had sent nothing authentic, and others wait"),
      );
    }
    this.#guests.add(guest);
    const served: Promise<void> = this.#serve(guest).finally(() => {
      this.#guests.delete(guest);
      this.#serving.delete(served);
      guest.link.close();
    });
    this.#serving.add(served);
  }

  async #serve(guest: Guest): Promise<void> {
    const { link } = guest;
    const length = new Uint8Array(DWE_LENGTH_BYTES);
    let buffer = new Uint8Array(FIRST_BUFFER_BYTES);
    // Others have their turn while one sender is never out of fragments.
    const breather = new Breather();
    try {
      for (;;) {
        await breather.breathe();
        const more = await link.within(
          SILENCE_MS,
          "waiting for a DWE fragment",
          () => link.readFully(length, "the length of a DWE fragment"),
        );
        if (!more) return;
        const bytes = new DataView(length.buffer).getUint32(0, true);
        checkDweLength(bytes);
        buffer = await link.within(
          FRAGMENT_MS,
          "receiving a DWE fragment",
          () => readGrowing(link, buffer, bytes),
        );
        if (!await this.#take(guest, buffer.subarray(0, bytes))) return;
      }
    } catch (error) {
      if (error instanceof DweError) {
        this.#follower.refuse(error, false);
        this.#logRefusal(link.peer, error.message);
        return;
      }
      if (!(error instanceof TransportError)) throw error;
      if (error.code !== "ended") log.debug("a DWE sender: {error}", { error: error.message });
    }
  }

  /** Takes a fragment; false when its sender must go. */
  async #take(guest: Guest, bytes: Uint8Array): Promise<boolean> {
    const { link } = guest;
    const { outcome, error, authentic, close, reply, round } = this.#follower.accept(bytes);
    if (authentic && !guest.known) {
      guest.known = true;
      log.info("following DWE sender {peer}", { peer: link.peer });
    }
    if (outcome === "rejected" && error !== undefined) this.#logRefusal(link.peer, error.message);
    if (round !== undefined) {
      this.#ready.resolve();
      this.#options.onRound?.(round, this.#follower.layers);
    }
    if (reply !== undefined) {
      const framed = new Uint8Array(DWE_LENGTH_BYTES + reply.length);
      new DataView(framed.buffer).setUint32(0, reply.length, true);
      framed.set(reply, DWE_LENGTH_BYTES);
      await link.within(
        REPLY_MS,
        "asking for a snapshot",
        () => link.writeFully(framed, "a request for a snapshot"),
      );
    }
    return !close;
  }

  /** Tells of refusals without letting a flood of them fill the log. */
  #logRefusal(peer: string, reason: string): void {
    this.#refusals++;
    const now = Date.now();
    const quiet = now - this.#refusalLoggedAt < REFUSAL_LOG_MS;
    if (this.#refusals > LOGGED_REFUSALS && quiet) return;
    this.#refusalLoggedAt = now;
    log.warning("refused DWE input of {peer}: {reason}; {refusals} refusals so far", {
      peer,
      reason,
      refusals: this.#refusals,
    });
  }
}

/** Reads `length` bytes into `buffer`, or into a larger one that grows as they come. */
async function readGrowing(
  link: Link,
  buffer: Uint8Array<ArrayBuffer>,
  length: number,
): Promise<Uint8Array<ArrayBuffer>> {
  let target = buffer;
  let have = 0;
  while (have < length) {
    if (have === target.length) {
      const larger = new Uint8Array(Math.min(2 * target.length, Math.max(length, target.length)));
      larger.set(target);
      target = larger;
    }
    const end = Math.min(length, target.length);
    const count = await link.readSome(target.subarray(have, end), "a DWE fragment");
    if (count === null) {
      throw new TransportError(
        "closed",
        `reading a DWE fragment from ${link.peer}: the stream ended after ${have} of ${length} bytes`,
      );
    }
    have += count;
  }
  return target;
}
