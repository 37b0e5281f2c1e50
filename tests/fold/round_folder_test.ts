import { assert, assertEquals } from "@std/assert";
import * as fc from "fast-check";
import { FoldBarrier } from "../../fold/barrier.ts";
import { RoundFolder } from "../../fold/round_folder.ts";
import { FrameSlot } from "../../frames/slot.ts";
import { Arena } from "../../kernels/arena.ts";
import { PlainKernel } from "../../kernels/plain.ts";
import { SimdKernel } from "../../kernels/simd.ts";
import { DEFAULT_FRAME_CEILING } from "../../wire/limits.ts";
import { decodeRecord } from "../../wire/mux.ts";
import { decodeFrame } from "../../wire/round_frame.ts";
import { LoopTagger } from "../../workers/tagger.ts";
import { SALT } from "../vectors.ts";
import { held, sequentialSum, valuesOf } from "./frames.ts";

const tagger = new LoopTagger(SALT);

/** What a signed record in a slot holds. */
function opened(record: Uint8Array) {
  const { header: { kind }, payload } = decodeRecord(
    Uint8Array.from(record),
    SALT,
    DEFAULT_FRAME_CEILING,
  );
  const header = decodeFrame(payload, SALT, DEFAULT_FRAME_CEILING);
  return { kind, header, values: valuesOf(payload, header).map((list) => [...list]) };
}

Deno.test("folder: rounds of any arrival, with leavers and odd frames, give one answer", async () => {
  const members = [0, 1, 2, 3, 4, 5, 6];
  const shapes = [[[3], [2]], [[3], [1, 2]]];
  const plan = fc.record({
    schema: fc.constantFrom(0, 0, 0, 1),
    weight: fc.integer({ min: 0, max: 5 }),
    /** Whether it delivers, leaves without, or leaves after. */
    fate: fc.constantFrom("delivers", "delivers", "delivers", "leaves", "delivers and leaves"),
    votes: fc.integer({ min: 1, max: 3 }),
    scale: fc.constantFrom(1, -1, 1e8, -1e8, 0.1, 1e-8),
  });
  const round = fc.record({
    plans: fc.array(plan, { minLength: 7, maxLength: 7 }),
    order: fc.shuffledSubarray(members, { minLength: 7, maxLength: 7 }),
  });
  const arena = new Arena();
  for (const kernel of [new PlainKernel(), SimdKernel.create(arena)]) {
    await fc.assert(
      fc.asyncProperty(fc.array(round, { minLength: 1, maxLength: 3 }), async (rounds) => {
        const barrier = new FoldBarrier(members);
        const out = new FrameSlot(arena);
        let votes: number[] = [];
        const folder = new RoundFolder(arena, kernel, barrier, out, (member) => votes[member]!);
        for (const { plans, order } of rounds) {
          votes = plans.map((one) => one.votes);
          for (const member of members) if (barrier.state(member) !== "idle") barrier.join(member);
          const frames = plans.map(({ schema, weight, scale }) =>
            held(shapes[schema]!, (tensor, element) => scale * (element + tensor + 1), { weight })
          );
          for (const member of order) {
            const { fate } = plans[member]!;
            if (fate !== "leaves") barrier.deliver(member, frames[member]!);
            if (fate !== "delivers") barrier.leave(member);
            await folder.absorb();
          }
          if (!barrier.complete) return;
          // The schema with most votes stays; of equals the one of the lowest member.
          const came = members.filter((member) => plans[member]!.fate !== "leaves");
          const behind = (schema: number) =>
            came.reduce((n, m) => plans[m]!.schema === schema ? n + votes[m]! : n, 0);
          const first = plans[came[0]!]!.schema;
          const winner = behind(1 - first) > behind(first) ? 1 - first : first;
          const kept = came.filter((member) => plans[member]!.schema === winner);
          const odd = folder.settle();
          assertEquals(
            odd.map(({ member }) => member),
            came.filter((member) => plans[member]!.schema !== winner),
          );
          for (const { reference, difference } of odd) {
            assertEquals(reference, kept[0]);
            assert(difference.startsWith("tensor 1 has shape"), difference);
          }
          await folder.finish(
            { kind: "broadcast", tagger, plain: true },
            { divide: true, narrow: false },
          );
          const { kind, header, values } = opened(out.record);
          const weight = kept.reduce((sum, member) => sum + plans[member]!.weight, 0);
          assertEquals([kind, header.weight], ["broadcast", weight]);
          const lists = kept.map((m) => valuesOf(frames[m]!.bytes, frames[m]!.header));
          const factor = weight > 0 ? Math.fround(1 / weight) : 1;
          values.forEach((list, tensor) => {
            const sum = sequentialSum(lists.map((all) => all[tensor]!));
            assertEquals(list, [...sum].map((value) => Math.fround(value * factor)));
          });
          barrier.seal();
          barrier.close();
        }
        out.release();
      }),
      { numRuns: 60 },
    );
  }
});

Deno.test("folder: frames are folded ahead, and a late contest starts the fold afresh", async () => {
  const arena = new Arena();
  const barrier = new FoldBarrier([0, 1, 2, 3, 4, 5]);
  const out = new FrameSlot(arena);
  const kernel = SimdKernel.create(arena);
  const folder = new RoundFolder(arena, kernel, barrier, out, () => 1);
  for (const member of [0, 1, 2, 3, 4, 5]) barrier.join(member);
  for (const member of [0, 1, 2, 3]) {
    barrier.deliver(member, held([[1]], () => 10 ** member));
    await folder.absorb();
  }
  // Four were folded ahead; the fifth does not fit.
  assertEquals(barrier.takeReady().length, 0);
  barrier.deliver(4, held([[2]]));
  await folder.absorb();
  barrier.deliver(5, held([[1]], () => 1e5));
  assertEquals(folder.settle().map(({ member, reference }) => [member, reference]), [[4, 0]]);
  await folder.finish(
    { kind: "host_frame", tagger, plain: true },
    { divide: false, narrow: false },
  );
  const { kind, header, values } = opened(out.record);
  assertEquals([kind, header.weight, values], ["host_frame", 5, [[101_111]]]);
});
