import { assert, assertEquals, assertRejects } from "@std/assert";
import * as fc from "fast-check";
import { FrameFold, type HeldFrame } from "../../fold/frame_fold.ts";
import { foldFrames, reduceFrames } from "./reduce.ts";
import { Arena } from "../../kernels/arena.ts";
import type { FoldKernel } from "../../kernels/kernel.ts";
import { PlainKernel } from "../../kernels/plain.ts";
import { SimdKernel } from "../../kernels/simd.ts";
import { InvariantError } from "../../wire/errors.ts";
import { DEFAULT_FRAME_CEILING } from "../../wire/limits.ts";
import { decodeFrame, encodeFrame } from "../../wire/round_frame.ts";
import { SALT } from "../vectors.ts";
import { held, sequentialSum, valuesOf } from "./frames.ts";

/** Kernels, each with a place for a frame; one that wants large tensors whole among them. */
function kernels(length: number): { kernel: FoldKernel; out: Uint8Array }[] {
  const arena = new Arena();
  const whole = new PlainKernel();
  Object.defineProperty(whole, "wholeFromBytes", { value: 1024 });
  return [
    { kernel: new PlainKernel(), out: new Uint8Array(length) },
    { kernel: whole, out: new Uint8Array(length) },
    { kernel: SimdKernel.create(arena), out: arena.alloc(length) },
  ];
}

function sums(frames: readonly HeldFrame[]): Float32Array[] {
  const lists = frames.map(({ bytes, header }) => valuesOf(bytes, header));
  return lists[0]!.map((_, i) => sequentialSum(lists.map((list) => list[i]!)));
}

Deno.test("fold: tensors of several pieces, in whatever portions the frames come", async () => {
  const shapes = [[3], [1_100_003], [], [0, 4], [1_048_577]];
  const frames = [3, -1, 0.1, 1e7, -1e7].map((scale, i) =>
    held(shapes, (tensor, element) => scale * ((element % 101) + tensor + 0.3), { weight: 2 ** i })
  );
  const wanted = sums(frames);
  const mean = wanted.map((list) => list.map((value) => value * Math.fround(1 / 31)));
  for (const portions of [[5], [1, 4], [2, 2, 1], [4, 1, 0]]) {
    for (const { kernel, out } of kernels(frames[0]!.header.length)) {
      const fold = new FrameFold(kernel, out);
      let at = 0;
      for (const count of portions.slice(0, -1)) {
        await fold.add(frames.slice(at, at + count));
        at += count;
      }
      const ends: number[] = [];
      const divide = portions.length === 3;
      const header = await fold.finish(frames.slice(at), divide, (end) => ends.push(end));
      assertEquals([header.weight, header.kind, fold.weight], [31, "model", 31]);
      const values = valuesOf(out, header);
      for (const [i, list] of (divide ? mean : wanted).entries()) {
        const bad = values[i]!.findIndex((value, j) => !Object.is(value, list[j]));
        assertEquals(bad, -1, `tensor ${i} with ${kernel.name} in portions ${portions}`);
      }
      // What was told to be final is ascending and ends at the last byte of data.
      assertEquals(ends, ends.toSorted((a, b) => a - b));
      assertEquals(ends.at(-1), header.length - 8);
      assertEquals(lengthIn(out), header.length);
    }
  }
});

/** The length that the headers of an unsigned frame say. */
function lengthIn(out: Uint8Array): number {
  const view = new DataView(out.buffer, out.byteOffset, out.byteLength);
  let at = 17;
  for (let tensor = 0; tensor < view.getUint32(4, true); tensor++) {
    const ndim = view.getUint8(at + 1);
    at += 10 + 4 * ndim;
    at += Number(view.getBigUint64(at - 8, true));
  }
  return at + 8;
}

Deno.test("fold: only a Model frame with mass is divided, and only when asked", async () => {
  const rows: [kind: "model" | "control", weight: number, divide: boolean, value: number][] = [
    ["model", 2, true, 1.5],
    ["model", 2, false, 6],
    ["control", 2, true, 6],
    ["model", 0, true, 6],
  ];
  for (const [kind, weight, divide, value] of rows) {
    const frames = [held([[2]], () => 2, { kind, weight }), held([[2]], () => 4, { kind, weight })];
    const out = new Uint8Array(frames[0]!.header.length);
    const header = await new FrameFold(new PlainKernel(), out).finish(frames, divide);
    assertEquals([header.kind, header.weight], [kind, 2 * weight]);
    assertEquals([...valuesOf(out, header)[0]!], [value, value]);
  }
});

Deno.test("fold: our own mistakes are broken invariants", async () => {
  const frame = held([[2]]);
  await assertRejects(
    () => new FrameFold(new PlainKernel(), new Uint8Array(9)).finish([], false),
    InvariantError,
    "a fold of no frames",
  );
  await assertRejects(
    () => new FrameFold(new PlainKernel(), new Uint8Array(9)).add([frame]),
    InvariantError,
    "one length",
  );
});

Deno.test("fold: nothing is lost and nothing invented, however ranks are spread over hosts", async () => {
  const kernel = new PlainKernel();
  const rank = fc.record({
    host: fc.nat(3),
    weight: fc.integer({ min: 0, max: 9 }),
    values: fc.array(fc.integer({ min: -1_000, max: 1_000 }), { minLength: 5, maxLength: 5 }),
  });
  await fc.assert(
    fc.asyncProperty(
      fc.array(rank, { minLength: 1, maxLength: 8 }),
      fc.constantFrom<"model" | "control">("model", "control"),
      async (ranks, kind) => {
        const frame = (one: typeof ranks[number]) =>
          encodeFrame(kind, one.weight, [{
            shape: [5],
            values: Float32Array.from(one.values, (v) => kind === "model" ? v * one.weight : v),
          }], SALT);
        const hosts = [0, 1, 2, 3].map((host) => ranks.filter((one) => one.host === host));
        const up = await Promise.all(
          hosts.map((list) =>
            list.length === 0
              ? undefined
              : foldFrames(list.map(frame), SALT, DEFAULT_FRAME_CEILING, kernel)
          ),
        );
        const result = await reduceFrames(up, SALT, DEFAULT_FRAME_CEILING, kernel);
        const header = decodeFrame(result, SALT, DEFAULT_FRAME_CEILING);
        const total = ranks.reduce((sum, { weight }) => sum + weight, 0);
        assertEquals([header.weight, header.kind], [total, kind]);
        // Whole numbers below 2^24 add without rounding, so that no grouping matters.
        const sum = [0, 1, 2, 3, 4].map((i) =>
          ranks.reduce((s, one) => s + one.values[i]! * (kind === "model" ? one.weight : 1), 0)
        );
        const factor = kind === "model" && total > 0 ? Math.fround(1 / total) : 1;
        assertEquals(
          [...valuesOf(result, header)[0]!],
          sum.map((s) => Math.fround(s * factor) + 0),
        );
        if (kind === "model" && total > 0) {
          const mean = valuesOf(result, header)[0]!;
          sum.forEach((s, i) => assert(Math.abs(mean[i]! * total - s) <= 1e-6 * Math.abs(s)));
        }
      },
    ),
  );
});
