// Signed requests: what lets one in, and what keeps it out.
import { assertEquals, assertInstanceOf, assertMatch, assertThrows } from "@std/assert";
import { createHmac } from "node:crypto";
import {
  AUTH_HEADERS,
  AUTH_WINDOW_MS,
  AuthError,
  RequestVerifier,
  sha256Hex,
  signedHeaders,
} from "../../controller/passes/auth.ts";
import { SESSION_SALT as SALT } from "../vectors.ts";

const NOW = 1_800_000_000_000;
const BODY = new TextEncoder().encode("body");
const REQUEST = { method: "PUT", path: "/v1/x?y=1", body: BODY };

function signed(
  changes: Partial<Record<keyof typeof AUTH_HEADERS, string>> = {},
  at = NOW,
): Headers {
  const headers = new Headers(signedHeaders(REQUEST, SALT, at));
  for (const [part, value] of Object.entries(changes)) {
    headers.set(AUTH_HEADERS[part as keyof typeof AUTH_HEADERS], value);
  }
  return headers;
}

function codeOf(run: () => unknown): string {
  const error = assertThrows(run);
  assertInstanceOf(error, AuthError);
  return (error as AuthError).code;
}

Deno.test("a signature covers method, path, body hash, timestamp and nonce, and nothing else", () => {
  const headers = signedHeaders(REQUEST, SALT, NOW);
  const text = [
    "PUT",
    "/v1/x?y=1",
    "230d8358dc8e8890b4c58deeb62912ee2f20357ae92a5cc861b98e68fe31acb5",
    String(NOW),
    headers[AUTH_HEADERS.nonce],
  ].join("\n");
  assertEquals(sha256Hex(BODY), text.split("\n")[2]);
  const expected = createHmac("sha256", SALT).update(text).digest("hex");
  assertEquals(headers[AUTH_HEADERS.signature], expected);
  assertMatch(headers[AUTH_HEADERS.nonce]!, /^[A-Za-z0-9_-]{16,64}$/);
});

Deno.test("a signed request gets in once", () => {
  const verifier = new RequestVerifier(SALT);
  const headers = signed();
  assertEquals(verifier.verify("PUT", "/v1/x?y=1", headers, NOW), sha256Hex(BODY));
  const again = () => verifier.verify("PUT", "/v1/x?y=1", headers, NOW + 1);
  assertEquals(codeOf(again), "ReplayedNonce");
  // It does not get in again either when its nonce has been forgotten.
  const late = NOW + AUTH_WINDOW_MS;
  verifier.verify("PUT", "/v1/x?y=1", signed({}, late), late);
  assertEquals(codeOf(() => verifier.verify("PUT", "/v1/x?y=1", headers, late)), "ReplayedNonce");
  const stale = () => verifier.verify("PUT", "/v1/x?y=1", headers, late + 1);
  assertEquals(codeOf(stale), "StaleTimestamp");
});

Deno.test("another method, path, hash, time, nonce, salt or signature keeps a request out", () => {
  const verify = (method: string, path: string, headers: Headers, salt = SALT) =>
    codeOf(() => new RequestVerifier(salt).verify(method, path, headers, NOW));
  assertEquals(verify("GET", "/v1/x?y=1", signed()), "BadSignature");
  assertEquals(verify("PUT", "/v1/x", signed()), "BadSignature");
  assertEquals(verify("PUT", "/v1/x?y=1", signed({ bodyHash: "0".repeat(64) })), "BadSignature");
  assertEquals(verify("PUT", "/v1/x?y=1", signed({ timestamp: String(NOW + 1) })), "BadSignature");
  assertEquals(verify("PUT", "/v1/x?y=1", signed({ nonce: "n".repeat(16) })), "BadSignature");
  assertEquals(verify("PUT", "/v1/x?y=1", signed({ signature: "0".repeat(64) })), "BadSignature");
  assertEquals(verify("PUT", "/v1/x?y=1", signed(), new Uint8Array(16)), "BadSignature");
});

Deno.test("a timestamp counts for a minute either way", () => {
  const verifier = new RequestVerifier(SALT);
  for (const at of [NOW - AUTH_WINDOW_MS, NOW + AUTH_WINDOW_MS]) {
    verifier.verify("PUT", "/v1/x?y=1", signed({}, at), NOW);
  }
  for (const at of [NOW - AUTH_WINDOW_MS - 1, NOW + AUTH_WINDOW_MS + 1]) {
    const run = () => verifier.verify("PUT", "/v1/x?y=1", signed({}, at), NOW);
    assertEquals(codeOf(run), "StaleTimestamp");
  }
});

Deno.test("missing and misshapen headers keep a request out", () => {
  const verifier = new RequestVerifier(SALT);
  for (const part of Object.keys(AUTH_HEADERS) as (keyof typeof AUTH_HEADERS)[]) {
    for (const value of ["", "x y", "é", "0x10", "1".repeat(65)]) {
      const run = () => verifier.verify("PUT", "/v1/x?y=1", signed({ [part]: value }), NOW);
      assertEquals(codeOf(run), "MissingSignature", `${part}: ${value}`);
    }
  }
});

Deno.test("the memory of nonces is bounded, and frees itself", () => {
  const verifier = new RequestVerifier(SALT, { maxNonces: 3 });
  const let1 = (at: number) => verifier.verify("PUT", "/v1/x?y=1", signed({}, at), at);
  for (let i = 0; i < 3; i++) let1(NOW + i);
  assertEquals(codeOf(() => let1(NOW + 3)), "TooManyRequests");
  // Those of requests that were refused are not remembered.
  assertEquals(codeOf(() => let1(NOW + AUTH_WINDOW_MS)), "TooManyRequests");
  let1(NOW + AUTH_WINDOW_MS + 1);
  let1(NOW + AUTH_WINDOW_MS + 2);
});
