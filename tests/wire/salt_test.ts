import { assert, assertEquals } from "@std/assert";
import { saltWeakness } from "../../wire/salt.ts";
import { unhex } from "../vectors.ts";

const text = (words: string) => new TextEncoder().encode(words);

Deno.test("salt: what people make up is refused, with the reason", () => {
  for (
    const [salt, reason] of [
      [new Uint8Array(16), "count or repeat"],
      [unhex("ff".repeat(16)), "count or repeat"],
      [unhex("000102030405060708090a0b0c0d0e0f"), "count or repeat"],
      [unhex("100f0e0d0c0b0a090807060504030201"), "count or repeat"],
      [unhex("00000000000000000000000000000001"), "count or repeat"],
      [unhex("fafbfcfdfeff00010203040506070809"), "count or repeat"],
      [unhex("0123456789abcdef0123456789abcdef"), "count or repeat"],
      [unhex("deadbeefdeadbeefdeadbeefdeadbeef"), "repeats itself after 4 bytes"],
      [unhex("8f14e45fceea167a8f14e45fceea167a"), "repeats itself after 8 bytes"],
      [unhex("a55a5aa5a5a55a5aff00a5005aa5ff5a"), "no more than 4 different bytes"],
      [text("correct-horse-ba"), "text"],
      [text("HUNTER2 PASSWORD"), "text"],
      [text("8f14e45fceea167a"), "text"],
      [text("Tierfold!session"), "text"],
    ] as const
  ) assert(saltWeakness(salt)?.includes(reason), `${saltWeakness(salt)}, not ${reason}`);
});

Deno.test("salt: what a generator makes is taken", () => {
  const salt = new Uint8Array(16);
  for (let i = 0; i < 200_000; i++) {
    assertEquals(saltWeakness(crypto.getRandomValues(salt)), undefined);
  }
});
