// The note that says why a connection is closed.
import { assert, assertEquals } from "@std/assert";
import * as fc from "fast-check";
import { decodeAck, PROTOCOL_F32 } from "../../wire/handshake.ts";
import { decodeLength } from "../../wire/length.ts";
import { MAX_FRAME_BYTES, MAX_REFUSAL_BYTES } from "../../wire/limits.ts";
import { decodeRecordHeader, RECORD_HEADER_BYTES } from "../../wire/mux.ts";
import {
  decodeRefusal,
  encodeRefusal,
  isRefusal,
  REFUSAL_HEADER_BYTES,
  refusalTextLength,
} from "../../wire/refusal.ts";
import { SALT } from "../vectors.ts";
import { salts } from "./arbitraries.ts";
import { amongOthers, concat, eachCut, eachFlip, inSharedMemory, refused } from "./torture.ts";

const REASON = "rank 7 is not one of this host's: 0-3";
const utf8 = new TextEncoder();

Deno.test("refusal: any text comes back, from any kind of memory", () => {
  const texts = fc.string({ unit: "binary", maxLength: 200 });
  fc.assert(fc.property(texts, salts, (text, salt) => {
    const bytes = encodeRefusal(text, salt);
    assert(isRefusal(bytes));
    assertEquals(refusalTextLength(bytes), bytes.length - REFUSAL_HEADER_BYTES);
    assertEquals(decodeRefusal(bytes, salt), text);
    assertEquals(decodeRefusal(amongOthers(bytes), salt), text);
  }));
  for (const text of ["", REASON, "\ufeffa mark in front", "€".repeat(300)]) {
    const bytes = encodeRefusal(text, SALT);
    assertEquals(decodeRefusal(bytes, SALT), text);
    assertEquals(decodeRefusal(inSharedMemory(bytes), SALT), text);
  }
});

Deno.test("refusal: another salt, a cut, something behind it, a flipped bit: not ours", () => {
  const bytes = encodeRefusal(REASON, SALT);
  eachFlip(SALT, (salt, bit) => assertEquals(decodeRefusal(bytes, salt), undefined, `${bit}`));
  eachCut(bytes, (cut) => {
    assertEquals(decodeRefusal(cut, SALT), undefined, `cut at ${cut.length}`);
    assertEquals(isRefusal(cut), cut.length >= 4);
  });
  assertEquals(decodeRefusal(concat(bytes, Uint8Array.of(32)), SALT), undefined);
  eachFlip(bytes, (flipped, bit) => {
    assertEquals(decodeRefusal(flipped, SALT), undefined, `bit ${bit}`);
    assertEquals(isRefusal(flipped), bit >= 32);
  });
});

Deno.test("refusal: a text over the limit is cut at a character", () => {
  // One to four bytes a character, so that the limit falls on each place inside one.
  for (const character of ["a", "ß", "€", "𝛕"]) {
    const width = utf8.encode(character).length;
    for (let shift = 0; shift < width; shift++) {
      const text = "x".repeat(shift) + character.repeat(MAX_REFUSAL_BYTES);
      const bytes = encodeRefusal(text, SALT);
      const back = decodeRefusal(bytes, SALT) ?? "";
      assert(!back.includes("\ufffd"), `${character} after ${shift}`);
      assertEquals(back, text.slice(0, back.length));
      const length = utf8.encode(back).length;
      assert(length <= MAX_REFUSAL_BYTES && length > MAX_REFUSAL_BYTES - width, `${length} bytes`);
    }
  }
  const exact = "y".repeat(MAX_REFUSAL_BYTES);
  assertEquals(decodeRefusal(encodeRefusal(exact, SALT), SALT), exact);
});

Deno.test("refusal: a length above the limit is not believed", () => {
  const bytes = encodeRefusal("z".repeat(MAX_REFUSAL_BYTES), SALT);
  const view = new DataView(bytes.buffer);
  for (const length of [MAX_REFUSAL_BYTES + 1, 0x7fff_ffff, 0xffff_ffff]) {
    view.setUint32(4, length, true);
    assertEquals(refusalTextLength(bytes), undefined);
    assertEquals(decodeRefusal(bytes, SALT), undefined);
  }
});

Deno.test("refusal: no answer, length or record can be mistaken for one, even under the largest ceiling", () => {
  const note = encodeRefusal(REASON, SALT);
  refused(() => decodeAck(note.subarray(0, 8), PROTOCOL_F32), "as an answer", "magic");
  refused(() => decodeLength(note, MAX_FRAME_BYTES), "as a length", "ceiling");
  const header = note.subarray(0, RECORD_HEADER_BYTES);
  refused(() => decodeRecordHeader(header, MAX_FRAME_BYTES), "as a record", "magic");
});

Deno.test("refusal: random bytes are nobody's note", () => {
  fc.assert(fc.property(fc.uint8Array({ maxLength: 60 }), (noise) => {
    assertEquals(decodeRefusal(noise, SALT), undefined);
    const marked = concat(new Uint8Array(4).fill(0xff), noise);
    assertEquals(decodeRefusal(marked, SALT), undefined);
  }));
});
