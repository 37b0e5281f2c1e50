// A hash over a fixed set of encodings. It trips when any encoding changes, also in ways that decoding
// would undo; peers of other versions and makes would not.
import { assertEquals } from "@std/assert";
import { type ControlMessage, encodeControl } from "../../wire/control.ts";
import { encodeAck, encodeHandshake, PROTOCOL_BF16, PROTOCOL_F32 } from "../../wire/handshake.ts";
import { encodeLength } from "../../wire/length.ts";
import { tag64 } from "../../wire/mac.ts";
import { encodeChannelMagic, encodeRecord } from "../../wire/mux.ts";
import { encodeRefusal } from "../../wire/refusal.ts";
import {
  DTYPE_BF16,
  DTYPE_F32,
  encodeFrame,
  encodeFrameHeaders,
  layoutFrame,
  sealFrame,
} from "../../wire/round_frame.ts";
import { hex, SALT } from "../vectors.ts";
import { concat } from "./torture.ts";

/** Changes only together with the protocol that docs/protocol.md describes. */
const EXPECTED = "9adba0062c27e31e7e1ed3f8d5056983db0fe3d0586ab093b8a82a5b0fba2842";

function tensor(shape: number[], seed: number): { shape: number[]; values: Float32Array } {
  const count = shape.reduce((product, dim) => product * dim, 1);
  // Multiples of 1/64 below 2^24: exact in f32, whatever computes them.
  const values = Float32Array.from(
    { length: count },
    (_, i) => ((i * 37 + seed) % 4_001) / 64 - 31,
  );
  return { shape, values };
}

function frames(): Uint8Array[] {
  const bf16 = layoutFrame([
    { dtype: DTYPE_BF16, shape: [3, 2] },
    { dtype: DTYPE_F32, shape: [9], nbytes: 0 },
  ]);
  const frame = new Uint8Array(bf16.length).fill(0x3f);
  const header = { ...bf16, kind: "control" as const, weight: 0.1 };
  encodeFrameHeaders(frame, header);
  sealFrame(frame, header, SALT);
  return [
    encodeFrame("model", 0, [], SALT),
    encodeFrame("control", Number.MAX_VALUE, [tensor([], 1)], SALT),
    encodeFrame("model", 1 / 3, [tensor([2, 3], 2), tensor([0], 3), tensor([1, 1], 4)], SALT),
    encodeFrame("model", 5e-324, [tensor(new Array(255).fill(1), 5)], new Uint8Array(16)),
    encodeFrame("model", 7, Array.from({ length: 300 }, (_, i) => tensor([i % 7, 3], i)), SALT),
    frame,
  ];
}

function controls(): Uint8Array[] {
  const ranks = [0, 250, 251, 65_535, 65_536, 0xffff_ffff];
  const messages: ControlMessage[] = [
    { type: "hello", host: "", ranks: [] },
    { type: "hello", host: "höst-ß", ranks },
    { type: "hello", host: "h".repeat(251), ranks: Array.from({ length: 300 }, (_, i) => i) },
    { type: "hello_ack" },
    ...ranks.map((rank) => ({ type: "rank_exit" as const, rank })),
    ...ranks.map((rank) => ({ type: "declare_dead" as const, rank })),
  ];
  return messages.map(encodeControl);
}

function lengths(): Uint8Array[] {
  return [0, 1, 111, 65_536, 1024 ** 3].map((length) => {
    const bytes = new Uint8Array(4);
    encodeLength(bytes, 0, length);
    return bytes;
  });
}

Deno.test("drift: the encodings are those of the protocol, byte for byte", async () => {
  const payload = Uint8Array.from({ length: 300 }, (_, i) => i & 0xff);
  const encodings = [
    ...frames(),
    encodeHandshake({ version: PROTOCOL_F32, rank: 0, worldSize: 1 }),
    encodeHandshake({ version: PROTOCOL_BF16, rank: 70_000, worldSize: 131_072 }),
    encodeAck(PROTOCOL_F32),
    encodeAck(PROTOCOL_BF16),
    ...lengths(),
    encodeChannelMagic(),
    encodeRecord("data", 0xffff_ffff, payload, SALT),
    encodeRecord("control", 0, payload.subarray(0, 1), SALT),
    encodeRecord("host_frame", 0, payload, new Uint8Array(16)),
    encodeRecord("broadcast", 0, new Uint8Array(0), SALT),
    ...controls(),
    encodeRefusal("", SALT),
    encodeRefusal("wrong world size: 7, expected 8", SALT),
    encodeRefusal("€".repeat(1_000), SALT),
    tag64(SALT),
    tag64(SALT, payload, payload),
  ];
  // Each with its length in front, so that no byte can move from one encoding to the next.
  const framed = encodings.flatMap((bytes) => {
    const length = new Uint8Array(4);
    encodeLength(length, 0, bytes.length);
    return [length, bytes];
  });
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", concat(...framed)));
  assertEquals(hex(digest), EXPECTED, "an encoding changed: other peers no longer understand it");
});
