/**
 * Where connections come from: what servers and clients ask of TCP, TLS, or a network in memory.
 *
 * @module
 */
import type { Connection } from "./connection.ts";
import { type Address, connectTcp, TcpListener } from "./tcp.ts";

/** Accepts connections at one address. */
export interface Listener {
  /** The address in use, with the real port. */
  readonly address: Address;

  /**
   * Hands every connection to `serve` until the listener is closed.
   *
   * @param onError Told of a failed accept, after which accepting goes on.
   */
  accept(
    serve: (connection: Connection) => void,
    onError: (error: Error) => void,
  ): Promise<void>;

  /** Stops accepting; connections already accepted live on. */
  close(): void;
}

/** How long to try to connect. */
export interface ConnectOptions {
  /** In milliseconds. */
  deadlineMs: number;
  /** Ends the attempt early. */
  signal?: AbortSignal;
}

/** A way to connect and to be connected to. */
export interface Network {
  /**
   * Listens on `address`; port 0 takes a free one.
   *
   * @throws {TransportError} with code "address" when the address cannot be had.
   */
  listen(address: Address): Listener;

  /**
   * Connects to `address`, again and again with growing pauses until the deadline.
   *
   * @param what Who is connected to, for errors: "the controller".
   * @throws {TransportError} with code "unreachable" when the time has passed, "ended" when aborted,
   *   "refused" when one end does not take the other.
   */
  connect(address: Address, what: string, options: ConnectOptions): Promise<Connection>;
}

/** TCP whatever it carries; TLS too. */
export const bareTcp: Network = {
  listen: (address) => TcpListener.listen(address),
  connect: connectTcp,
};

/** Plain TCP: a peer that speaks TLS is told apart from one that speaks nonsense. */
export const tcp: Network = {
  listen: (address) => TcpListener.listen(address, { refuseTls: true }),
  connect: (address, what, options) => connectTcp(address, what, { ...options, refuseTls: true }),
};
