// Control messages and their bincode, against known bytes and against damage.
import { assertEquals, assertNotEquals } from "@std/assert";
import * as fc from "fast-check";
import { BincodeReader, BincodeWriter } from "../../wire/bincode.ts";
import { type ControlMessage, decodeControl, encodeControl } from "../../wire/control.ts";
import { MAX_HOST_NAME_BYTES } from "../../wire/limits.ts";
import { good, hex, unhex, vectorBytes } from "../vectors.ts";
import { controls } from "./arbitraries.ts";
import {
  amongOthers,
  concat,
  eachCut,
  eachFlip,
  expectLittleMemory,
  inSharedMemory,
  refused,
  tryDecode,
} from "./torture.ts";

/** The control payloads of the golden records. */
const payloads = good("mux").filter(({ record }) => record === "control")
  .map(({ file }) => ({ file, bytes: vectorBytes(file).slice(25) }));

Deno.test("bincode: each width holds the numbers that need it, and no shorter form is missed", () => {
  const cases: [number, string][] = [
    [0, "00"],
    [250, "fa"],
    [251, "fbfb00"],
    [255, "fbff00"],
    [65_535, "fbffff"],
    [65_536, "fc00000100"],
    [4_294_967_295, "fcffffffff"],
    [4_294_967_296, "fd0000000001000000"],
    [Number.MAX_SAFE_INTEGER, "fdffffffffffff1f00"],
  ];
  for (const [value, bytes] of cases) {
    assertEquals(hex(new BincodeWriter().uint(value).finish()), bytes);
    const reader = new BincodeReader(unhex(bytes), "a number");
    assertEquals(reader.uint("it", value), value);
    assertEquals(reader.remaining, 0);
    eachCut(unhex(bytes), (cut) => {
      refused(
        () => new BincodeReader(cut, "a number").uint("it", value),
        `${value} cut at ${cut.length}`,
        "truncated",
        /reading it of a number/,
      );
    });
    if (value === 0) continue;
    refused(
      () => new BincodeReader(unhex(bytes), "a number").uint("it", value - 1),
      `${value}`,
      "message",
      new RegExp(`${value} is above the limit of ${value - 1}`),
    );
  }
  for (const marker of ["fe", "ff"]) {
    const reader = new BincodeReader(unhex(marker + "00".repeat(16)), "a number");
    refused(() => reader.uint("it", Infinity), marker, "message", /integer marker 25[45]/);
  }
});

Deno.test("bincode: strings are UTF-8, whole, bounded, and kept as they are", () => {
  const read = (bytes: Uint8Array, max = 255) =>
    new BincodeReader(bytes, "a message").string("host", max);
  for (const text of ["", "a", "höst-ß", "\ufeffbom", "nul\0", "𝛕", "x".repeat(251)]) {
    const bytes = new BincodeWriter().string(text).finish();
    for (const view of [bytes, inSharedMemory(bytes), amongOthers(bytes)]) {
      assertEquals(read(view), text);
    }
  }
  const notUtf8 = ["01ff", "02c3", "02c328", "03eda080", "04f8888080", "02c080"];
  for (const bytes of notUtf8) {
    const error = refused(() => read(unhex(bytes)), bytes);
    assertEquals(error.code, bytes === "02c3" ? "truncated" : "message", bytes);
  }
  refused(() => read(unhex("036162"), 3), "cut", "truncated", /3 bytes expected, 2 left/);
  refused(() => read(unhex("03616263"), 2), "long", "message", /3 is above the limit of 2/);
  refused(() => read(unhex("fdffffffffffffffff")), "huge", "message", /above the limit of 255/);
});

Deno.test("control: any message comes back, from any kind of memory", () => {
  fc.assert(
    fc.property(controls, (message) => {
      const bytes = encodeControl(message);
      assertEquals(decodeControl(bytes), message);
      assertEquals(decodeControl(amongOthers(bytes)), message);
    }),
    { numRuns: 300 },
  );
  for (const { bytes } of payloads) {
    assertEquals(decodeControl(inSharedMemory(bytes)), decodeControl(bytes));
  }
});

Deno.test("control: a message keeps its values when its buffer is used again", () => {
  for (const { file, bytes } of payloads) {
    const wanted = decodeControl(bytes);
    const memory = bytes.slice();
    const message = decodeControl(memory);
    memory.fill(0xff);
    assertEquals(message, wanted, file);
  }
});

Deno.test("control: cut anywhere it is truncated", () => {
  assertEquals(payloads.length, 6);
  for (const { file, bytes } of payloads) {
    eachCut(bytes, (cut) => {
      const error = refused(() => decodeControl(cut), `${file} cut at ${cut.length}`);
      // The number of ranks is bounded by the bytes left, which is how a cut Hello may show first.
      const allowed = file.startsWith("mux_hello") ? ["truncated", "message"] : ["truncated"];
      assertEquals(allowed.includes(error.code), true, error.message);
    });
  }
});

// A message has no tag of its own, the record around it has one: on its own, a flipped bit is refused or
// gives another message, never the same one.
Deno.test("control: a flipped bit is refused or is another message", () => {
  let refusals = 0;
  let others = 0;
  for (const { file, bytes } of payloads) {
    const wanted = decodeControl(bytes);
    eachFlip(bytes, (flipped, bit) => {
      const message = tryDecode(() => decodeControl(flipped));
      if (message === undefined) refusals++;
      else {
        others++;
        assertNotEquals(message, wanted, `${file}, bit ${bit}`);
      }
    });
  }
  assertEquals(refusals > 0 && others > 0, true);
});

Deno.test("control: bytes behind Hello's ranks are ignored, behind other messages refused", () => {
  const later = new Uint8Array(70).fill(0xfe);
  for (const { file, bytes } of payloads) {
    const longer = concat(bytes, later);
    if (file.startsWith("mux_hello_ack") || !file.startsWith("mux_hello")) {
      refused(() => decodeControl(longer), file, "trailing", /70 bytes follow a/);
    } else assertEquals(decodeControl(longer), decodeControl(bytes), file);
  }
});

// Hello of host "a" with rank 0; then no signatures, "tierfold" and the flag for bf16.
const PLAIN_HELLO = "0001610100";
const ADDITION = "0008" + "74696572666f6c64" + "01";

Deno.test("control: our addition to Hello has its bytes, and anything but it is ignored", () => {
  const plain: ControlMessage = { type: "hello", host: "a", ranks: [0] };
  const narrow: ControlMessage = { ...plain, narrow: true };
  const bytes = unhex(PLAIN_HELLO + ADDITION);
  assertEquals(hex(encodeControl(plain)), PLAIN_HELLO);
  assertEquals(hex(encodeControl(narrow)), PLAIN_HELLO + ADDITION);
  for (const view of [bytes, inSharedMemory(bytes), amongOthers(bytes)]) {
    assertEquals(decodeControl(view), narrow);
  }
  // Flags and bytes of later versions do not hide the one that we know.
  assertEquals(decodeControl(concat(bytes, Uint8Array.of(1, 2, 3))), narrow);
  assertEquals(decodeControl(concat(bytes.subarray(0, -1), Uint8Array.of(3))), narrow);
  assertEquals(decodeControl(concat(bytes.subarray(0, -1), Uint8Array.of(2))), plain);

  const start = unhex(PLAIN_HELLO);
  const addition = unhex(ADDITION);
  eachCut(addition, (cut) => assertEquals(decodeControl(concat(start, cut)), plain));
  eachFlip(addition, (flipped, bit) => {
    // The flags are the last byte; one more of them leaves ours as it is.
    const stillOurs = bit >= 8 * (addition.length - 1) + 1 && flipped.at(-1)! < 251;
    assertEquals(decodeControl(concat(start, flipped)), stillOurs ? narrow : plain, `bit ${bit}`);
  });
  // A peer that announces model signatures, one of 32 bytes for its rank.
  const signatures = concat(start, Uint8Array.of(1), new Uint8Array(32).fill(7));
  assertEquals(decodeControl(signatures), plain);
});

// The same with flag 2, instance 7, session 9, round 300, 5 frames sent, the last one's result due; and
// the answer, whose fate is "held".
const STANDING_HELLO = PLAIN_HELLO + "0008" + "74696572666f6c64" + "02" + "0709fb2c010501";
const PLACED_ACK = "0108" + "74696572666f6c64" + "02" + "09fb2c0102";

Deno.test("control: a relay's standing and its answer have their bytes", () => {
  const standing = { instance: 7, session: 9, round: 300, sent: 5, pending: true };
  const hello: ControlMessage = { type: "hello", host: "a", ranks: [0], standing };
  const ack: ControlMessage = {
    type: "hello_ack",
    place: { session: 9, round: 300, fate: "held" },
  };
  assertEquals(hex(encodeControl(hello)), STANDING_HELLO);
  assertEquals(hex(encodeControl(ack)), PLACED_ACK);
  assertEquals(decodeControl(unhex(STANDING_HELLO)), hello);
  assertEquals(decodeControl(unhex(PLACED_ACK)), ack);
  const plain: ControlMessage = { type: "hello", host: "a", ranks: [0] };
  eachCut(unhex(STANDING_HELLO).subarray(PLAIN_HELLO.length / 2), (cut) => {
    assertEquals(decodeControl(concat(unhex(PLAIN_HELLO), cut)), plain);
  });
  eachCut(unhex(PLACED_ACK), (cut) => {
    if (cut.length < 2) return;
    refused(
      () => decodeControl(cut),
      `cut at ${cut.length}`,
      "trailing",
      /bytes follow a hello_ack/,
    );
  });
});

Deno.test("control: the world size follows whatever else does, and is left out where that is unreadable", () => {
  const nonce = "0f".repeat(16);
  const standing = { instance: 7, session: 8, round: 9, sent: 1, pending: false };
  for (const more of [{}, { standing }, { nonce }, { narrow: true, standing, nonce }]) {
    const hello: ControlMessage = { type: "hello", host: "a", ranks: [0], ...more, worldSize: 300 };
    assertEquals(decodeControl(encodeControl(hello)), hello);
  }
  const odd = encodeControl({
    type: "hello",
    host: "a",
    ranks: [0],
    nonce: "x".repeat(32),
    worldSize: 3,
  });
  assertEquals(decodeControl(odd), { type: "hello", host: "a", ranks: [0] });
});

Deno.test("control: what breaks the protocol is refused by name", () => {
  const hello = (host: string, ranks: number[]) => encodeControl({ type: "hello", host, ranks });
  const cases: [Uint8Array, RegExp][] = [
    [unhex("04"), /unknown variant 4, expected 0-3/],
    [unhex("fbffff"), /unknown variant 65535/],
    [hello("node-a", [0, 2, 1]), /Hello of host "node-a": rank 1 follows 2; ranks must ascend/],
    [hello("node-a", [3, 3]), /rank 3 follows 3/],
    [hello("x".repeat(MAX_HOST_NAME_BYTES + 1), [0]), /256 is above the limit of 255/],
    [unhex("02fd0000000001000000"), /RankExit's rank .*4294967296 is above/],
    [unhex("03fd0000000001000000"), /DeclareDead's rank .*4294967296 is above/],
    [unhex("000001fd0000000001000000"), /Hello's rank 0 .*4294967296 is above/],
    [unhex("0000fcffffffff"), /number of Hello's ranks .*4294967295 is above the limit of 5/],
    [unhex("0000fdffffffffffffffff"), /number of Hello's ranks/],
  ];
  for (const [bytes, message] of cases) {
    refused(() => decodeControl(bytes), hex(bytes), "message", message);
  }
  assertEquals(decodeControl(hello("x".repeat(MAX_HOST_NAME_BYTES), [])).type, "hello");
});

Deno.test("control: announced counts and lengths cost nothing", () => {
  // A list of 2^32 - 1 ranks, a host of as many bytes, a list of 2^53 - 1 ranks.
  const announced = ["0000fcffffffff00", "00fcffffffff61", "0000fdffffffffffff1f00"].map(unhex);
  for (const bytes of announced) {
    expectLittleMemory(1024 ** 2, () => refused(() => decodeControl(bytes), hex(bytes)));
  }
});

Deno.test("control: random bytes are a message or a refusal, and a message encodes back", () => {
  fc.assert(
    fc.property(fc.integer({ min: 0, max: 4 }), fc.uint8Array({ maxLength: 60 }), (first, rest) => {
      const bytes = concat(Uint8Array.of(first), rest);
      const message: ControlMessage | undefined = tryDecode(() => decodeControl(bytes));
      if (message !== undefined) assertEquals(decodeControl(encodeControl(message)), message);
    }),
    { numRuns: 500 },
  );
});
