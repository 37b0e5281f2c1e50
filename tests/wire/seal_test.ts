import { assertEquals, assertNotEquals, assertThrows } from "@std/assert";
import { decodeControl, encodeControl } from "../../wire/control.ts";
import { WireError } from "../../wire/errors.ts";
import { SEAL_BYTES, sealKey, Seals } from "../../wire/seal.ts";
import { hex, SALT, unhex } from "../vectors.ts";

const A = unhex("00112233445566778899aabbccddeeff");
const B = unhex("ffeeddccbbaa99887766554433221100");
const TAG = unhex("0102030405060708");

Deno.test("seal: the key depends on the salt and on both nonces, in their order", () => {
  const key = hex(sealKey(SALT, A, B));
  assertEquals(key.length, 32);
  for (const other of [sealKey(SALT, B, A), sealKey(SALT, A, A), sealKey(A, A, B)]) {
    assertNotEquals(hex(other), key);
  }
});

Deno.test("seal: each fits one place of one direction and one tag", () => {
  const key = sealKey(SALT, A, B);
  const [mine, theirs] = [new Seals(key, "up"), new Seals(key, "up")];
  const first = mine.next(TAG);
  const second = mine.next(TAG);
  assertEquals(first.length, SEAL_BYTES);
  assertNotEquals(hex(first), hex(second));
  assertNotEquals(hex(new Seals(key, "down").next(TAG)), hex(first));
  theirs.expect(TAG, first);
  theirs.expect(TAG, second);
  const refused = (seals: Seals, tag: Uint8Array, seal: Uint8Array) =>
    assertEquals((assertThrows(() => seals.expect(tag, seal), WireError) as WireError).code, "mac");
  refused(new Seals(key, "up"), TAG, second);
  refused(new Seals(key, "down"), TAG, first);
  refused(new Seals(key, "up"), A.subarray(0, 8), first);
  refused(new Seals(sealKey(SALT, A, A), "up"), TAG, first);
});

Deno.test("seal: nonces travel in Hello and in an answer of their own", () => {
  const nonce = hex(A);
  const standing = { instance: 5, session: 6, round: 7, sent: 8, pending: true };
  for (const more of [{}, { narrow: true as const }, { standing }, { narrow: true, standing }]) {
    const hello = { type: "hello" as const, host: "a", ranks: [1, 2], ...more, nonce };
    assertEquals(decodeControl(encodeControl(hello)), hello);
  }
  assertEquals(decodeControl(encodeControl({ type: "nonce", nonce })), { type: "nonce", nonce });
  // An offer that makes no sense is none; an answer that makes none is an error.
  const odd = encodeControl({ type: "hello", host: "a", ranks: [1], nonce: "x".repeat(32) });
  assertEquals(decodeControl(odd), { type: "hello", host: "a", ranks: [1] });
  assertThrows(() => decodeControl(encodeControl({ type: "nonce", nonce: "12" })), WireError);
});
