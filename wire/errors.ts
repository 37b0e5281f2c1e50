/**
 * Errors with a scope: who caused it, and what dies with it.
 *
 * Peer bytes never end the process: they raise a {@link WireError}, whose scope says what its sender
 * loses. A broken promise of our own raises an {@link InvariantError}, which nobody catches.
 *
 * @module
 */

/** Why bytes were refused; one word a cause, so that tests and logs can tell them apart. */
export type WireErrorCode =
  | "magic"
  | "version"
  | "kind"
  | "truncated"
  | "trailing"
  | "tensor-count"
  | "weight"
  | "ceiling"
  | "mac"
  | "dtype"
  | "shape"
  | "schema"
  | "empty"
  | "message"
  | "handshake"
  | "membership"
  | "nonfinite";

/** What the sender of refused bytes loses. */
export type WireErrorScope = "frame" | "connection";

/** Bytes from a peer that are not what the protocol promises. */
export class WireError extends Error {
  /** The class of this error, for logs. */
  override readonly name = "WireError";

  /**
   * Makes an error about bytes that came from a peer.
   *
   * @param code The cause.
   * @param scope What its sender loses.
   * @param message What was being read, what was expected, and what came.
   */
  constructor(
    readonly code: WireErrorCode,
    readonly scope: WireErrorScope,
    message: string,
  ) {
    super(message);
  }
}

/** A promise that this program made to itself does not hold: the process must stop. */
export class InvariantError extends Error {
  /** The class of this error, for logs. */
  override readonly name = "InvariantError";
}

/**
 * Asserts one of our own invariants.
 *
 * @throws {InvariantError} when `condition` is false.
 */
export function invariant(condition: boolean, message: string): asserts condition {
  if (!condition) throw new InvariantError(`broken invariant: ${message}`);
}
