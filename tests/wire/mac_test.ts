// The streaming tag against an independent HMAC, a published answer, and shared memory.
import { assert, assertEquals, assertThrows } from "@std/assert";
import * as fc from "fast-check";
import { InvariantError } from "../../wire/errors.ts";
import { SALT_BYTES, TAG_BYTES } from "../../wire/limits.ts";
import { Tag64, tag64, tagsEqual } from "../../wire/mac.ts";
import { hex, SALT } from "../vectors.ts";
import { salts } from "./arbitraries.ts";
import { amongOthers, eachFlip, inSharedMemory } from "./torture.ts";

const utf8 = new TextEncoder();

Deno.test("tag: the answer of RFC 4231, test case 2", () => {
  // HMAC pads short keys with zeros, so the RFC's 4-byte key "Jefe" is also a 16-byte salt.
  const salt = new Uint8Array(SALT_BYTES);
  salt.set(utf8.encode("Jefe"));
  const tag = tag64(salt, utf8.encode("what do ya want for nothing?"));
  assertEquals(hex(tag), "5bdcc146bf60754e");
});

Deno.test("tag: equals WebCrypto's HMAC for any salt, bytes and pieces", async () => {
  const pieces = fc.array(fc.uint8Array({ maxLength: 300 }), { maxLength: 8 });
  await fc.assert(
    fc.asyncProperty(salts, pieces, async (salt, parts) => {
      const key = await crypto.subtle.importKey(
        "raw",
        Uint8Array.from(salt),
        { name: "HMAC", hash: "SHA-256" },
        false,
        ["sign"],
      );
      const whole = Uint8Array.from(parts.flatMap((part) => [...part]));
      const full = new Uint8Array(await crypto.subtle.sign("HMAC", key, whole));
      const wanted = hex(full.subarray(0, TAG_BYTES));
      const streamed = new Tag64(salt);
      for (const part of parts) streamed.update(amongOthers(part));
      assertEquals(hex(streamed.digest()), wanted);
      assertEquals(hex(tag64(salt, ...parts)), wanted);
    }),
    { numRuns: 150 },
  );
});

Deno.test("tag: shared memory gives the tag of ordinary memory", () => {
  for (const length of [0, 1, 63, 64, 65, 4_096, 200_001]) {
    const bytes = Uint8Array.from({ length }, (_, i) => (i * 31 + (i >> 8)) & 0xff);
    const shared = inSharedMemory(bytes);
    assert(shared.buffer instanceof SharedArrayBuffer);
    const wanted = tag64(SALT, bytes);
    assertEquals(tag64(SALT, shared), wanted, `${length} bytes at once`);
    const streamed = new Tag64(SALT);
    for (let at = 0; at < length; at += 1_000) {
      streamed.update(shared.subarray(at, Math.min(at + 1_000, length)));
    }
    assertEquals(streamed.digest(), wanted, `${length} bytes in pieces`);
    assertEquals(tag64(inSharedMemory(SALT), bytes), wanted, "the salt itself is shared");
    assert(tagsEqual(inSharedMemory(wanted), wanted));
  }
});

Deno.test("tag: bytes are read before update returns, whatever happens to the buffer next", () => {
  const buffer = utf8.encode("first piece");
  const tag = new Tag64(SALT).update(buffer);
  buffer.fill(0);
  assertEquals(tag.digest(), tag64(SALT, utf8.encode("first piece")));
});

Deno.test("tag: a salt of another length is our own fault", () => {
  for (const length of [0, SALT_BYTES - 1, SALT_BYTES + 1, 32]) {
    assertThrows(() => new Tag64(new Uint8Array(length)), InvariantError, `not ${length}`);
  }
});

Deno.test("tag: equal only when every bit is", () => {
  const tag = tag64(SALT, utf8.encode("x"));
  assertEquals(tag.length, TAG_BYTES);
  assert(tagsEqual(tag, tag.slice()));
  eachFlip(tag, (flipped, bit) => assert(!tagsEqual(flipped, tag), `bit ${bit}`));
  assert(!tagsEqual(tag, tag.subarray(0, 7)));
  assert(!tagsEqual(new Uint8Array(0), tag));
});
