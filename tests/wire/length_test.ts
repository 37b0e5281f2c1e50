// Length framing against the golden vectors, and against damage.
import { assertEquals, assertNotEquals, assertThrows } from "@std/assert";
import * as fc from "fast-check";
import { InvariantError } from "../../wire/errors.ts";
import { decodeLength, encodeLength, LENGTH_BYTES } from "../../wire/length.ts";
import { DEFAULT_FRAME_CEILING, MAX_FRAME_BYTES } from "../../wire/limits.ts";
import { decodeFrame } from "../../wire/round_frame.ts";
import { bad, good, SALT, vectorBytes } from "../vectors.ts";
import { amongOthers, eachCut, eachFlip, inSharedMemory, refused } from "./torture.ts";

function prefixOf(length: number): Uint8Array {
  const bytes = new Uint8Array(LENGTH_BYTES);
  encodeLength(bytes, 0, length);
  return bytes;
}

Deno.test("length: vectors decode to the index's payload and encode back", () => {
  const vectors = good("len_framed");
  assertEquals(vectors.length, 2);
  for (const { file, payload } of vectors) {
    const bytes = vectorBytes(file);
    const wanted = payload === null ? new Uint8Array(0) : vectorBytes(payload!);
    for (const view of [bytes, inSharedMemory(bytes), amongOthers(bytes)]) {
      assertEquals(decodeLength(view, DEFAULT_FRAME_CEILING), wanted.length, file);
    }
    assertEquals(bytes.slice(LENGTH_BYTES), wanted, file);
    // A prefix is written into a buffer that holds older bytes.
    const out = new Uint8Array(bytes.length + 20).fill(0xee);
    encodeLength(out, 5, wanted.length);
    out.set(wanted, 5 + LENGTH_BYTES);
    assertEquals(out.slice(5, 5 + bytes.length), bytes, file);
    assertEquals(out.slice(0, 5), new Uint8Array(5).fill(0xee));
  }
  assertEquals(bad("len_framed").length, 0);
});

Deno.test("length: cut anywhere it is refused", () => {
  eachCut(prefixOf(111), (cut) => {
    refused(
      () => decodeLength(cut, DEFAULT_FRAME_CEILING),
      `cut at ${cut.length}`,
      "truncated",
      new RegExp(`${cut.length} bytes came, expected 4`),
    );
  });
});

// A prefix has no tag: a flipped bit is another length, or one above the ceiling. The frame behind it is
// then too short or too long for its own headers, or fails its tag.
Deno.test("length: a flipped bit is another length, and the frame behind it is refused", () => {
  const bytes = vectorBytes("len_framed_model_a.bin");
  const after = new Uint8Array(2 ** 16);
  after.set(bytes.subarray(LENGTH_BYTES));
  eachFlip(bytes.subarray(0, LENGTH_BYTES), (flipped, bit) => {
    const wanted = 111 + (111 & (1 << bit) ? -1 : 1) * 2 ** bit;
    if (wanted > DEFAULT_FRAME_CEILING) {
      refused(() => decodeLength(flipped, DEFAULT_FRAME_CEILING), `bit ${bit}`, "ceiling");
      return;
    }
    const length = decodeLength(flipped, DEFAULT_FRAME_CEILING);
    assertEquals(length, wanted);
    assertNotEquals(length, 111);
    if (length > after.length) return;
    const blob = after.subarray(0, length);
    refused(() => decodeFrame(blob, SALT, DEFAULT_FRAME_CEILING), `bit ${bit}`);
  });
});

Deno.test("length: the ceiling itself passes, one more byte does not", () => {
  for (const ceiling of [0, 1, 250, 64 * 1024 ** 2, DEFAULT_FRAME_CEILING, MAX_FRAME_BYTES - 1]) {
    assertEquals(decodeLength(prefixOf(ceiling), ceiling), ceiling);
    const message = new RegExp(`${ceiling + 1} bytes announced, above the frame ceiling of`);
    refused(() => decodeLength(prefixOf(ceiling + 1), ceiling), "", "ceiling", message);
  }
});

Deno.test("length: what 4 bytes cannot say is never written", () => {
  for (const length of [-1, MAX_FRAME_BYTES + 1, 2 ** 32, 2 ** 32 + 111, NaN]) {
    assertThrows(() => prefixOf(length), InvariantError, `${length}`);
  }
});

Deno.test("length: any length comes back", () => {
  fc.assert(fc.property(
    fc.integer({ min: 0, max: MAX_FRAME_BYTES }),
    fc.uint8Array({ maxLength: 8 }),
    (length, rest) => {
      const bytes = new Uint8Array(LENGTH_BYTES + rest.length);
      encodeLength(bytes, 0, length);
      bytes.set(rest, LENGTH_BYTES);
      assertEquals(decodeLength(bytes, MAX_FRAME_BYTES), length);
    },
  ));
});
