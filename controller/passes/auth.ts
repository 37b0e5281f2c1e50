/**
 * Who may use the intake: whoever can sign a request with the session salt, once.
 *
 * The signature is HMAC-SHA256, in lower-case hex, under the 16 bytes of the salt, of five lines joined
 * by line feeds, without one at the end:
 *
 *     METHOD
 *     PATH, with the query as it is sent
 *     SHA-256 of the body, in lower-case hex
 *     TIMESTAMP, milliseconds since 1970
 *     NONCE, 16 to 64 of the characters A-Z a-z 0-9 _ -
 *
 * The last three and the signature travel in four headers. A signature is good for a minute either way
 * and for one request: its nonce is remembered for as long.
 *
 * @module
 */
import { createHash, createHmac } from "node:crypto";
import { timingSafeEqual } from "@std/crypto/timing-safe-equal";

/** The headers of a signed request. */
export const AUTH_HEADERS = {
  timestamp: "x-tierfold-timestamp",
  nonce: "x-tierfold-nonce",
  bodyHash: "x-tierfold-body-sha256",
  signature: "x-tierfold-signature",
} as const;

/** How far the clocks of both sides may be apart, in milliseconds. */
export const AUTH_WINDOW_MS = 60_000;

/** Why a request was not let in. */
export type AuthErrorCode =
  | "MissingSignature"
  | "StaleTimestamp"
  | "BadSignature"
  | "ReplayedNonce"
  | "BodyHashMismatch"
  | "TooManyRequests";

/** A request that was not let in. */
export class AuthError extends Error {
  /** "AuthError". */
  override readonly name = "AuthError";
  /** The cause. */
  readonly code: AuthErrorCode;

  /** Builds the error from its cause and from what was expected and found. */
  constructor(code: AuthErrorCode, message: string) {
    super(message);
    this.code = code;
  }
}

/** What a signature covers. */
export interface SignedParts {
  /** GET, PUT, POST or DELETE. */
  readonly method: string;
  /** The path with its query, as in the request line. */
  readonly path: string;
  /** SHA-256 of the body, lower-case hex. */
  readonly bodyHash: string;
  /** Milliseconds since 1970, decimal. */
  readonly timestamp: string;
  /** Fresh for every request. */
  readonly nonce: string;
}

/** SHA-256 in lower-case hex. */
export function sha256Hex(bytes: Uint8Array): string {
  return createHash("sha256").update(bytes).digest("hex");
}

/** The signature of a request, in lower-case hex. */
export function signParts(parts: SignedParts, salt: Uint8Array): string {
  const { method, path, bodyHash, timestamp, nonce } = parts;
  const text = [method, path, bodyHash, timestamp, nonce].join("\n");
  return createHmac("sha256", salt).update(text).digest("hex");
}

/**
 * The four headers that let a request in.
 *
 * ```ts
 * import { assertEquals } from "@std/assert";
 * import { signedHeaders } from "@tierfold/tierfold";
 *
 * const salt = crypto.getRandomValues(new Uint8Array(16));
 * const headers = signedHeaders({ method: "GET", path: "/v1/passes" }, salt);
 * assertEquals(Object.keys(headers).length, 4);
 * ```
 *
 * @param request.path The path with its query, as it will be sent.
 * @param salt The session salt, 16 bytes.
 * @param nowMs Milliseconds since 1970.
 */
export function signedHeaders(
  request: { method: string; path: string; body?: Uint8Array },
  salt: Uint8Array,
  nowMs: number = Date.now(),
): Record<string, string> {
  const parts: SignedParts = {
    method: request.method,
    path: request.path,
    bodyHash: sha256Hex(request.body ?? new Uint8Array()),
    timestamp: String(nowMs),
    nonce: crypto.randomUUID(),
  };
  return {
    [AUTH_HEADERS.timestamp]: parts.timestamp,
    [AUTH_HEADERS.nonce]: parts.nonce,
    [AUTH_HEADERS.bodyHash]: parts.bodyHash,
    [AUTH_HEADERS.signature]: signParts(parts, salt),
  };
}

const SHAPES = {
  timestamp: /^[0-9]{1,15}$/,
  nonce: /^[A-Za-z0-9_-]{16,64}$/,
  bodyHash: /^[0-9a-f]{64}$/,
  signature: /^[0-9a-f]{64}$/,
} as const;

/** Checks signatures and remembers nonces. Time comes in as an argument. */
export class RequestVerifier {
  readonly #salt: Uint8Array;
  readonly #maxNonces: number;
  /** Nonce -> when it may be forgotten; oldest first, but for clocks that differ. */
  readonly #nonces = new Map<string, number>();

  /** Takes the session salt, and how many nonces may be remembered. */
  constructor(salt: Uint8Array, options: { maxNonces?: number } = {}) {
    this.#salt = salt;
    this.#maxNonces = options.maxNonces ?? 100_000;
  }

  /**
   * Lets a request in, once, as far as its headers go; the body is still to be held against the hash
   * that is returned.
   *
   * @returns What SHA-256 the body must have, in lower-case hex.
   * @throws {AuthError} MissingSignature, StaleTimestamp, BadSignature, ReplayedNonce, TooManyRequests.
   */
  verify(method: string, path: string, headers: Headers, nowMs: number): string {
    const values = {} as Record<keyof typeof SHAPES, string>;
    for (const part of Object.keys(SHAPES) as (keyof typeof SHAPES)[]) {
      const value = headers.get(AUTH_HEADERS[part]) ?? "";
      if (!SHAPES[part].test(value)) {
        throw new AuthError(
          "MissingSignature",
          `${method} ${path}: the header ${AUTH_HEADERS[part]} is ` +
            (value === "" ? "missing" : `not of the form ${SHAPES[part].source}`),
        );
      }
      values[part] = value;
    }
    const { timestamp, nonce, bodyHash, signature } = values;
    const expected = signParts({ method, path, bodyHash, timestamp, nonce }, this.#salt);
    const encoder = new TextEncoder();
    if (!timingSafeEqual(encoder.encode(expected), encoder.encode(signature))) {
      throw new AuthError(
        "BadSignature",
        `${method} ${path}: the signature is not that of this request under the session salt`,
      );
    }
    const age = nowMs - Number(timestamp);
    if (Math.abs(age) > AUTH_WINDOW_MS) {
      throw new AuthError(
        "StaleTimestamp",
        `${method} ${path}: its timestamp is ${age} ms old, at most ${AUTH_WINDOW_MS} ms either way ` +
          "are allowed; check the clocks",
      );
    }
    this.#remember(nonce, Number(timestamp) + AUTH_WINDOW_MS, nowMs, `${method} ${path}`);
    return bodyHash;
  }

  #remember(nonce: string, until: number, nowMs: number, what: string): void {
    if (this.#nonces.has(nonce)) {
      throw new AuthError("ReplayedNonce", `${what}: its nonce was used before`);
    }
    for (const [old, end] of this.#nonces) {
      // A signature that passes again at `end` is stale only after it.
      if (end >= nowMs && this.#nonces.size < this.#maxNonces) break;
      if (end >= nowMs) {
        throw new AuthError(
          "TooManyRequests",
          `${what}: ${this.#maxNonces} requests were let in within the last minutes`,
        );
      }
      this.#nonces.delete(old);
    }
    this.#nonces.set(nonce, until);
  }
}
