/**
 * Keeps one DWE peer connected: writes what waits for it, and listens for its requests.
 *
 * @module
 */
import { type Connection, TransportError } from "../../transport/connection.ts";
import { Link } from "../../transport/link.ts";
import { type Address, connectTcp } from "../../transport/tcp.ts";
import {
  checkDweStateHash,
  decodeDwe,
  DWE_LENGTH_BYTES,
  DweError,
  verifyDwe,
} from "../../wire/dwe.ts";
import { parseTag } from "../../delta/session.ts";
import type { KeyRing } from "../../delta/keys.ts";
import type { DeltaBus } from "./bus.ts";
import type { DeltaEngine } from "./engine.ts";

/** How long one attempt to connect may take, in milliseconds. */
const DIAL_MS = 3_000;
/** How long a peer may take to receive one fragment, in milliseconds. */
const WRITE_MS = 30_000;
/** Longest request; a fragment without layers takes about 300 bytes. */
const MAX_REQUEST_BYTES = 4_096;

/** What a {@link PeerLoop} works with. */
export interface PeerLoopContext {
  /** What waits for whom. */
  readonly bus: DeltaBus;
  /** What there is. */
  readonly engine: DeltaEngine;
  /** The fleet's keys. */
  readonly ring: Pick<KeyRing, "keys">;
  /** Whether connections open with a hello, so that replicas can ask for snapshots. */
  readonly snapshots: boolean;
  /** Gives out snapshots, when one is asked for or one is through. */
  readonly serve: () => void;
  /** Told of what an operator wants to know. */
  readonly onEvent: (level: "info" | "warning", text: string) => void;
}

/** Takes `HOST:PORT` apart, an IPv6 address in brackets. */
export function parsePeer(text: string): Address {
  const at = text.lastIndexOf(":");
  const hostname = text.slice(0, at).replace(/^\[(.*)\]$/, "$1");
  return { hostname, port: Number(text.slice(at + 1)) };
}

/** The life of one peer, from the first attempt to connect until the publisher stops. */
export class PeerLoop {
  readonly #address: string;
  readonly #context: PeerLoopContext;
  #wake: () => void = () => {};

  /** Takes the peer's host:port. */
  constructor(address: string, context: PeerLoopContext) {
    this.#address = address;
    this.#context = context;
  }

  /** Says that something may wait for the peer. */
  wake(): void {
    this.#wake();
  }

  /** Runs until `signal` aborts; never rejects for the peer's sake. */
  async run(signal: AbortSignal): Promise<void> {
    const { bus, onEvent, serve } = this.#context;
    const stop = () => this.#wake();
    signal.addEventListener("abort", stop);
    try {
      while (!signal.aborted) {
        const dialAt = bus.dialAt(this.#address) ?? 0;
        const ms = dialAt - Date.now();
        if (ms > 0) {
          await this.#pause(ms);
          continue;
        }
        bus.dialing(this.#address);
        let reason: string;
        try {
          const connection = await connectTcp(parsePeer(this.#address), "a DWE peer", {
            deadlineMs: DIAL_MS,
            signal,
          });
          reason = await this.#serve(connection, signal);
          if (!signal.aborted) onEvent("warning", `lost DWE peer ${this.#address}: ${reason}`);
        } catch (error) {
          reason = messageOf(error);
        }
        bus.failed(this.#address, reason, Date.now());
        serve();
      }
    } finally {
      signal.removeEventListener("abort", stop);
    }
  }

  /** Serves a connection until it ends, and says why it did. */
  async #serve(connection: Connection, signal: AbortSignal): Promise<string> {
    const { bus, onEvent } = this.#context;
    const link = new Link(connection);
    bus.connected(this.#address, Date.now());
    onEvent("info", `connected to DWE peer ${this.#address}`);
    const stop = () => link.close();
    signal.addEventListener("abort", stop);
    const greeting = Promise.withResolvers<bigint | undefined>();
    const sides = [this.#speak(link, greeting.resolve), this.#listen(link, greeting.promise)];
    const ended = sides.map((side) => side.then((reason) => reason, messageOf));
    try {
      return await Promise.race(ended);
    } finally {
      signal.removeEventListener("abort", stop);
      link.close();
      greeting.resolve(undefined);
      this.#wake();
      await Promise.all(ended);
    }
  }

  /** Writes hello, then whatever waits, as it comes. */
  async #speak(link: Link, greeted: (sequence: bigint | undefined) => void): Promise<string> {
    const { bus, engine, ring, snapshots, serve } = this.#context;
    if (snapshots) {
      const sequence = bus.next();
      greeted(sequence);
      await this.#write(link, engine.hello(sequence, ring.keys().current).bytes);
    } else greeted(undefined);
    while (!link.ended) {
      const fragment = bus.head(this.#address, ring.keys().current);
      if (fragment === undefined) {
        await this.#pause();
        continue;
      }
      await this.#write(link, fragment.bytes);
      bus.sent(this.#address, fragment);
      serve();
    }
    return "the connection was closed here";
  }

  async #write(link: Link, bytes: Uint8Array): Promise<void> {
    const length = new Uint8Array(DWE_LENGTH_BYTES);
    new DataView(length.buffer).setUint32(0, bytes.length, true);
    await link.within(WRITE_MS, "sending a DWE fragment", async () => {
      await link.writeFully(length, "the length of a DWE fragment");
      await link.writeFully(bytes, "a DWE fragment");
    });
  }

  /** Reads requests. A peer that says anything else is a plain one: what it says is thrown away. */
  async #listen(link: Link, greeting: Promise<bigint | undefined>): Promise<string> {
    const length = new Uint8Array(DWE_LENGTH_BYTES);
    const hello = await greeting;
    while (hello !== undefined && await link.readFully(length, "the length of a request")) {
      const bytes = new DataView(length.buffer).getUint32(0, true);
      if (bytes > MAX_REQUEST_BYTES) {
        this.#context.bus.rejected(
          this.#address,
          `a request of ${bytes} bytes from ${this.#address}: at most ${MAX_REQUEST_BYTES} are read`,
        );
        break;
      }
      const request = new Uint8Array(bytes);
      await link.readFully(request, "a request");
      this.#request(request, hello);
    }
    const sink = new Uint8Array(MAX_REQUEST_BYTES);
    while (await link.readSome(sink, "what a plain peer says") !== null);
    return "it closed the connection";
  }

  #request(bytes: Uint8Array, hello: bigint): void {
    const { bus, engine, ring, serve } = this.#context;
    try {
      const decoded = decodeDwe(bytes);
      verifyDwe(decoded, ring.keys());
      checkDweStateHash(decoded.fragment);
      const { sessionId } = decoded.fragment;
      const tag = parseTag(sessionId);
      if (tag?.what !== "want" || tag.sid !== engine.sid || tag.hello !== hello) {
        throw new DweError(
          "Malformed",
          `${
            JSON.stringify(sessionId.slice(0, 80))
          } does not ask for a snapshot on this connection`,
        );
      }
      bus.heard(sessionId, bytes.length);
      bus.want(this.#address, tag.nonce);
      serve();
    } catch (error) {
      if (!(error instanceof DweError)) throw error;
      bus.rejected(this.#address, `a request from ${this.#address}: ${error.message}`);
    }
  }

  /** Waits until somebody wakes the loop, or for `ms`. */
  #pause(ms?: number): Promise<void> {
    return new Promise((resolve) => {
      const timer = ms === undefined ? undefined : setTimeout(() => this.#wake(), ms);
      this.#wake = () => {
        clearTimeout(timer);
        this.#wake = () => {};
        resolve();
      };
    });
  }
}

function messageOf(error: unknown): string {
  if (error instanceof TransportError || error instanceof DOMException) return error.message;
  if (error instanceof Error && error.name !== "InvariantError") return error.message;
  throw error;
}
