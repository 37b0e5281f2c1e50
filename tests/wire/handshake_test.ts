// The rank handshake and its answer against the golden vectors, and against damage.
import { assertEquals, assertNotEquals } from "@std/assert";
import * as fc from "fast-check";
import {
  ACK_BYTES,
  decodeAck,
  decodeHandshake,
  encodeAck,
  encodeHandshake,
  HANDSHAKE_BYTES,
  PROTOCOL_BF16,
  PROTOCOL_F32,
} from "../../wire/handshake.ts";
import { MAX_WORLD_SIZE } from "../../wire/limits.ts";
import { bad, good, vectorBytes } from "../vectors.ts";
import { amongOthers, concat, eachCut, eachFlip, inSharedMemory, refused } from "./torture.ts";

const BOTH = [PROTOCOL_F32, PROTOCOL_BF16];
const sample = { version: PROTOCOL_F32, rank: 3, worldSize: 8 };

Deno.test("handshake: vectors decode to the index's values and encode back", () => {
  const vectors = good("rank_handshake");
  assertEquals(vectors.length, 1);
  for (const { file, rank, world } of vectors) {
    const bytes = vectorBytes(file);
    const decoded = decodeHandshake(bytes);
    assertEquals(decoded, { version: PROTOCOL_F32, rank, worldSize: world }, file);
    assertEquals(decodeHandshake(inSharedMemory(bytes)), decoded);
    assertEquals(decodeHandshake(amongOthers(bytes)), decoded);
    assertEquals(encodeHandshake(decoded), bytes, file);
  }
  assertEquals(bad("rank_handshake").length, 0);
});

Deno.test("handshake answer: vectors decode and encode back", () => {
  const vectors = good("rank_handshake_ack");
  assertEquals(vectors.length, 1);
  for (const { file } of vectors) {
    const bytes = vectorBytes(file);
    decodeAck(bytes);
    decodeAck(inSharedMemory(bytes));
    assertEquals(encodeAck(PROTOCOL_F32), bytes, file);
  }
  assertEquals(bad("rank_handshake_ack").length, 0);
});

Deno.test("handshake: cut anywhere or lengthened it is refused", () => {
  const bytes = encodeHandshake(sample);
  eachCut(bytes, (cut) => {
    const message = new RegExp(`${cut.length} bytes came, expected ${HANDSHAKE_BYTES}`);
    refused(() => decodeHandshake(cut), `cut at ${cut.length}`, "truncated", message);
  });
  refused(() => decodeHandshake(concat(bytes, Uint8Array.of(0))), "one byte more");
  const ack = encodeAck(PROTOCOL_F32);
  eachCut(ack, (cut) => {
    const message = new RegExp(`${cut.length} bytes came, expected ${ACK_BYTES}`);
    refused(() => decodeAck(cut), `cut at ${cut.length}`, "truncated", message);
  });
  refused(() => decodeAck(concat(ack, Uint8Array.of(0))), "one byte more");
});

// The handshake has no tag: a flip in the magic or the version is refused, one in the rank or the world
// size is refused when the rank is no longer below the world size, and is another rank otherwise. That
// rank is then refused by the relay, or its first frame fails its tag.
Deno.test("handshake: a flipped bit is refused or names another rank or world", () => {
  eachFlip(encodeHandshake(sample), (flipped, bit) => {
    if (bit < 32) refused(() => decodeHandshake(flipped), `bit ${bit}`, "magic", /magic 0x/);
    else if (bit < 64) {
      refused(() => decodeHandshake(flipped), `bit ${bit}`, "version", /protocol version \d+, /);
      // Only a side that speaks both versions takes a 2 that became a 3.
      if (bit === 32) assertEquals(decodeHandshake(flipped, BOTH).version, PROTOCOL_BF16);
      else refused(() => decodeHandshake(flipped, BOTH), `bit ${bit}`, "version");
    } else {
      const input = new DataView(flipped.buffer);
      const rank = input.getUint32(8, true);
      const worldSize = input.getUint32(12, true);
      if (rank < worldSize && worldSize <= MAX_WORLD_SIZE) {
        assertEquals(decodeHandshake(flipped), { ...sample, rank, worldSize });
        assertNotEquals({ ...sample, rank, worldSize }, sample);
      } else {
        const message = new RegExp(`rank ${rank} of world size ${worldSize}`);
        refused(() => decodeHandshake(flipped), `bit ${bit}`, "handshake", message);
      }
    }
  });
});

Deno.test("handshake answer: every flipped bit is refused", () => {
  eachFlip(encodeAck(PROTOCOL_F32), (flipped, bit) => {
    refused(() => decodeAck(flipped), `bit ${bit}`, bit < 32 ? "magic" : "version");
  });
  refused(() => decodeAck(encodeAck(PROTOCOL_BF16), PROTOCOL_F32), "3 for 2", "version");
  refused(() => decodeAck(encodeAck(PROTOCOL_F32), PROTOCOL_BF16), "2 for 3", "version");
});

Deno.test("handshake: a world of nobody, a rank at its end, and too large a world are refused", () => {
  const cases: [number, number][] = [[0, 0], [8, 8], [9, 8], [0, MAX_WORLD_SIZE + 1]];
  for (const [rank, worldSize] of cases) {
    const bytes = encodeHandshake({ version: PROTOCOL_F32, rank, worldSize });
    refused(() => decodeHandshake(bytes), `${rank} of ${worldSize}`, "handshake");
  }
  const last = { version: PROTOCOL_F32, rank: MAX_WORLD_SIZE - 1, worldSize: MAX_WORLD_SIZE };
  assertEquals(decodeHandshake(encodeHandshake(last)), last);
});

Deno.test("handshake: any value comes back, and any 16 bytes are a value or a refusal", () => {
  const handshakes = fc.record({
    version: fc.constantFrom(...BOTH),
    worldSize: fc.integer({ min: 1, max: MAX_WORLD_SIZE }),
    part: fc.double({ min: 0, max: 1, maxExcluded: true, noNaN: true }),
  }).map(({ version, worldSize, part }) => ({
    version,
    rank: Math.floor(part * worldSize),
    worldSize,
  }));
  fc.assert(fc.property(handshakes, (handshake) => {
    assertEquals(decodeHandshake(encodeHandshake(handshake), BOTH), handshake);
    decodeAck(encodeAck(handshake.version), handshake.version);
  }));
  const noise = fc.uint8Array({ minLength: HANDSHAKE_BYTES, maxLength: HANDSHAKE_BYTES });
  fc.assert(fc.property(noise, (bytes) => {
    // A random first word is the magic once in 2^32.
    refused(() => decodeHandshake(bytes), "noise", "magic");
    refused(() => decodeAck(bytes.subarray(0, ACK_BYTES)), "noise", "magic");
  }));
});
