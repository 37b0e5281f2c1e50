/**
 * What servers ask of whoever connects.
 *
 * @module
 */

/** The terms on which a connection is taken. */
export interface Terms {
  /** How long a stranger may take to say who it is, in milliseconds. */
  handshakeMs: number;
  /** Whether channels between relay and controller must be sealed against replay. */
  requireNonce: boolean;
}

/** Those of a server that is told nothing else. */
export const TERMS: Terms = { handshakeMs: 10_000, requireNonce: false };
