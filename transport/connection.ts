/**
 * What the rest of Tierfold needs of a connection, whatever carries it.
 *
 * @module
 */

/** A reliable, ordered stream of bytes in both directions. */
export interface Connection {
  /** The other end, as errors and logs name it. */
  readonly peer: string;

  /**
   * Reads what is there, at least one byte, at most `into.length`.
   *
   * @returns The number of bytes, or null at the end of the stream.
   */
  read(into: Uint8Array): Promise<number | null>;

  /** Writes a part of `bytes`, at least one byte, and says how many. */
  write(bytes: Uint8Array): Promise<number>;

  /** Says that nothing more will be written; the other end reads the end of the stream. */
  closeWrite(): Promise<void>;

  /** Says that the other end has said who it is: limits on strangers no longer count for it. */
  welcome?(): void;

  /** Ends both directions at once; a pending read or write fails. May be called again. */
  close(): void;
}

/** What went wrong between two ends. */
export type TransportErrorCode =
  /** No connection could be made. */
  | "unreachable"
  /** The two ends do not take each other, by TLS: trying again would change nothing. */
  | "refused"
  /** An address to listen on could not be had. */
  | "address"
  /** The other end closed, or broke, in the middle of something. */
  | "closed"
  /** The other end closed, and said why: trying again will not help. */
  | "refused"
  /** A deadline passed. */
  | "deadline"
  /** Our own end was closed on purpose. */
  | "ended";

/** A connection that could not be made, broke or took too long. */
export class TransportError extends Error {
  /** The class of this error, for logs. */
  override readonly name = "TransportError";

  /**
   * Makes an error about a connection.
   *
   * @param code What went wrong.
   * @param message What was being done, with whom, and what happened.
   * @param options The error behind it, where there is one.
   */
  constructor(readonly code: TransportErrorCode, message: string, options?: ErrorOptions) {
    super(message, options);
  }
}
