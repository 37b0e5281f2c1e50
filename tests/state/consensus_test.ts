import { assert, assertEquals } from "@std/assert";
import { Consensus, MAX_GROUPS } from "../../controller/state/consensus.ts";
import { FrameSlot } from "../../frames/slot.ts";
import { Arena } from "../../kernels/arena.ts";
import { DTYPE_BF16, DTYPE_F32, layoutFrame } from "../../wire/round_frame.ts";

function header(shape: readonly number[], dtype = DTYPE_F32) {
  return layoutFrame([{ dtype, shape }]);
}

/** Lets everything that can go on go on. */
function turn(): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, 0));
}

Deno.test("consensus: a result stays where it lies, and the slot before it is used next", async () => {
  const arena = new Arena();
  const consensus = new Consensus(arena);
  const layout = header([1_000]);
  const first = new FrameSlot(arena);
  first.reserve(layout.length);
  const a = await consensus.keep(layout, first);
  assert(a.group?.slot === first && a.out !== first);
  a.out.reserve(layout.length);
  const b = await consensus.keep({ ...layout, weight: 2 }, a.out);
  assert(b.group === a.group && b.group?.slot === a.out && b.out === first);
  assertEquals(b.group?.header.weight, 2);
});

Deno.test("consensus: a slot that is read is not given away before", async () => {
  const arena = new Arena();
  const consensus = new Consensus(arena);
  const layout = header([10]);
  const out = new FrameSlot(arena);
  out.reserve(layout.length);
  const { group, out: next } = await consensus.keep(layout, out);
  const readers = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  for (const { promise } of readers) group!.hold(promise);
  next.reserve(layout.length);
  let kept = false;
  const keeping = consensus.keep(layout, next).then(() => kept = true);
  readers[0]!.reject(new Error("a reader that fails has read all the same"));
  await turn();
  assertEquals(kept, false);
  readers[1]!.resolve();
  await keeping;
});

Deno.test("consensus: a small frame does not keep a large slot", async () => {
  const arena = new Arena();
  const consensus = new Consensus(arena);
  const out = new FrameSlot(arena);
  out.reserve(100_000);
  const layout = header([3]);
  out.reserve(layout.length);
  out.frame.fill(7);
  const { group, out: next } = await consensus.keep(layout, out);
  assert(next === out);
  assertEquals(group!.bytes.slice(), out.frame.slice());
  out.frame.fill(8);
  assertEquals(group!.run(0, 1, 8).slice(), new Uint8Array(8).fill(7));
});

Deno.test("consensus: groups are told apart by shapes alone, and there are only so many", async () => {
  const arena = new Arena();
  const consensus = new Consensus(arena);
  const keep = async (layout: ReturnType<typeof header>) => {
    const out = new FrameSlot(arena);
    out.reserve(layout.length);
    return await consensus.keep(layout, out);
  };
  for (let i = 0; i < MAX_GROUPS; i++) await keep(header([i]));
  assertEquals(consensus.groups.length, MAX_GROUPS);
  const out = new FrameSlot(arena);
  const many = header([9]);
  out.reserve(many.length);
  assertEquals(await consensus.keep(many, out), { group: undefined, out });
  assert(consensus.find(header([2], DTYPE_BF16)) === consensus.groups[2]);
  assert(consensus.find(header([2, 1])) === undefined);
  assert(consensus.find(header([])) === undefined);
});
