// Random values of every format, for the property tests.
import * as fc from "fast-check";
import { elementCount, type RoundKind } from "../../wire/round_frame.ts";
import type { ControlMessage } from "../../wire/control.ts";
import type { RecordKind } from "../../wire/mux.ts";
import { MAX_HOST_NAME_BYTES, SALT_BYTES } from "../../wire/limits.ts";

export interface RandomTensor {
  shape: number[];
  values: Float32Array;
}

export interface RandomFrame {
  kind: RoundKind;
  weight: number;
  tensors: RandomTensor[];
}

export const salts: fc.Arbitrary<Uint8Array> = fc.uint8Array({
  minLength: SALT_BYTES,
  maxLength: SALT_BYTES,
});

/** Values of any bits whatever: NaNs with payloads, infinities, subnormals. */
function valuesOf(count: number): fc.Arbitrary<Float32Array> {
  return fc.uint32Array({ minLength: count, maxLength: count })
    .map((bits) => new Float32Array(Uint32Array.from(bits).buffer));
}

export const tensors: fc.Arbitrary<RandomTensor> = fc
  .array(fc.integer({ min: 0, max: 5 }), { maxLength: 4 })
  .chain((shape) => valuesOf(elementCount(shape)).map((values) => ({ shape, values })));

export const frames: fc.Arbitrary<RandomFrame> = fc.record({
  kind: fc.constantFrom<RoundKind>("model", "control"),
  weight: fc.double({ min: 0, noNaN: true, noDefaultInfinity: true }),
  tensors: fc.array(tensors, { maxLength: 12 }),
});

export const u32: fc.Arbitrary<number> = fc.oneof(
  fc.integer({ min: 0, max: 0xffff_ffff }),
  fc.constantFrom(0, 1, 250, 251, 252, 0xff, 0x100, 0xffff, 0x1_0000, 0x7fff_ffff, 0xffff_ffff),
);

export const hosts: fc.Arbitrary<string> = fc
  .string({ unit: "binary", maxLength: MAX_HOST_NAME_BYTES })
  .filter((host) => new TextEncoder().encode(host).length <= MAX_HOST_NAME_BYTES);

const counts = fc.nat({ max: Number.MAX_SAFE_INTEGER });

export const controls: fc.Arbitrary<ControlMessage> = fc.oneof(
  fc.record({
    type: fc.constant("hello" as const),
    host: hosts,
    ranks: fc.uniqueArray(u32, { maxLength: 40 }).map((ranks) => ranks.sort((a, b) => a - b)),
    narrow: fc.constant(true as const),
    standing: fc.record({
      instance: counts,
      session: counts,
      round: counts,
      sent: counts,
      pending: fc.boolean(),
    }),
  }, { requiredKeys: ["type", "host", "ranks"] }),
  fc.record({
    type: fc.constant("hello_ack" as const),
    place: fc.record({
      session: counts,
      round: counts,
      fate: fc.constantFrom("none" as const, "again" as const, "held" as const),
    }),
  }, { requiredKeys: ["type"] }),
  fc.record({ type: fc.constant("rank_exit" as const), rank: u32 }),
  fc.record({ type: fc.constant("declare_dead" as const), rank: u32 }),
);

export const recordKinds: fc.Arbitrary<RecordKind> = fc.constantFrom(
  "data",
  "control",
  "host_frame",
  "broadcast",
);

/** A way to cut `length` bytes into pieces: ascending numbers of bytes received, the last one all. */
export function arrivals(length: number): fc.Arbitrary<number[]> {
  return fc.array(fc.integer({ min: 0, max: length }), { maxLength: 30 })
    .map((cuts) => [...cuts.sort((a, b) => a - b), length]);
}
