// The block store over memory and over a directory.
import { assert, assertEquals, assertInstanceOf, assertRejects } from "@std/assert";
import {
  type BlockShelf,
  BlockStore,
  MemoryShelf,
  StoreError,
} from "../../controller/passes/store.ts";
import { DirectoryShelf } from "../../controller/passes/directory_shelf.ts";
import { canonicalGarw, cidOfCanonical } from "../../wire/garw.ts";

function block(...values: number[]): { cid: string; bytes: Uint8Array } {
  const bytes = canonicalGarw(Float32Array.from(values), 1);
  return { cid: cidOfCanonical(bytes), bytes };
}

async function codeOf(run: () => Promise<unknown>): Promise<string> {
  const error = await assertRejects(run);
  assertInstanceOf(error, StoreError);
  return (error as StoreError).code;
}

const A = block(1, 2);
const B = block(3, 4);
const C = block(5, 6);
const ROOM = { maxBytes: 2 * A.bytes.length };

async function inDirectory(run: (directory: string) => Promise<void>): Promise<void> {
  const directory = await Deno.makeTempDir();
  try {
    await run(directory);
  } finally {
    await Deno.remove(directory, { recursive: true });
  }
}

async function keepsBlocks(shelf: BlockShelf): Promise<void> {
  const store = await BlockStore.open(shelf, ROOM);
  await store.put(A.cid, A.bytes);
  await store.put(B.cid, B.bytes);
  assertEquals(await store.get(A.cid), A.bytes);
  assertEquals([store.size, store.bytes], [2, 2 * A.bytes.length]);
  // Everything is held: there is no room for another one, but a known one costs nothing.
  assertEquals(await codeOf(() => store.put(C.cid, C.bytes)), "StoreFull");
  await store.put(A.cid, Uint8Array.from(A.bytes));
  assertEquals(store.size, 2);
  // A is held twice, B not at all any more: B goes.
  await store.release(A.cid);
  await store.forget(A.cid);
  await store.release(B.cid);
  assertEquals(await store.get(B.cid), B.bytes);
  await store.put(C.cid, C.bytes);
  assertEquals(await codeOf(() => store.get(B.cid)), "BlockNotFound");
  await store.release(A.cid);
  await store.forget(A.cid);
  assertEquals(await codeOf(() => store.get(A.cid)), "BlockNotFound");
  assertEquals(store.bytes, C.bytes.length);
  assertEquals(await codeOf(() => store.get("grad-../../etc/passwd")), "InvalidCid");
  assertEquals(await codeOf(() => store.put(C.cid, B.bytes)), "CidCollision");
  assertEquals(await store.get(C.cid), C.bytes);
}

Deno.test("blocks are kept in memory, bounded", () => keepsBlocks(new MemoryShelf()));

Deno.test("blocks are kept in a directory, bounded", () =>
  inDirectory(async (directory) => keepsBlocks(await DirectoryShelf.open(directory))));

Deno.test("blocks in a directory outlive the process, and are verified when read", () =>
  inDirectory(async (directory) => {
    const first = await BlockStore.open(await DirectoryShelf.open(`${directory}/new/er`), ROOM);
    await first.put(A.cid, A.bytes);
    await Deno.writeTextFile(`${directory}/new/er/${B.cid}.garw.0.part`, "cut off");
    await Deno.writeTextFile(`${directory}/new/er/notes.txt`, "not a block");
    const second = await BlockStore.open(await DirectoryShelf.open(`${directory}/new/er`), ROOM);
    assertEquals([second.size, second.bytes], [1, A.bytes.length]);
    assertEquals(await second.get(A.cid), A.bytes);
    const names = (await Array.fromAsync(Deno.readDir(`${directory}/new/er`))).map((e) => e.name);
    assertEquals(names.sort(), [`${A.cid}.garw`, "notes.txt"]);

    const damaged = Uint8Array.from(A.bytes);
    damaged[16]! ^= 1;
    await Deno.writeFile(`${directory}/new/er/${A.cid}.garw`, damaged);
    assertEquals(await codeOf(() => second.get(A.cid)), "CorruptBlock");
    // Whoever delivers the block again mends it.
    await second.put(A.cid, A.bytes);
    assertEquals(await second.get(A.cid), A.bytes);
    await Deno.remove(`${directory}/new/er/${A.cid}.garw`);
    assertEquals(await codeOf(() => second.get(A.cid)), "BlockNotFound");
  }));

Deno.test("a failed write leaves nothing behind and nothing counted", () =>
  inDirectory(async (directory) => {
    const shelf = await DirectoryShelf.open(directory);
    const store = await BlockStore.open(shelf, ROOM);
    // A directory in the place of the file makes the rename fail.
    await Deno.mkdir(`${directory}/${A.cid}.garw/x`, { recursive: true });
    await assertRejects(() => store.put(A.cid, A.bytes));
    assertEquals([store.size, store.bytes], [0, 0]);
    await Deno.remove(`${directory}/${A.cid}.garw`, { recursive: true });
    await store.put(A.cid, A.bytes);
    assertEquals(await store.get(A.cid), A.bytes);
    const names = (await Array.fromAsync(Deno.readDir(directory))).map((e) => e.name);
    assert(!names.some((name) => name.endsWith(".part")), names.join());
  }));

Deno.test("concurrent puts of one block keep it once, and hold it as often", async () => {
  const store = await BlockStore.open(new MemoryShelf(), ROOM);
  await Promise.all(Array.from({ length: 20 }, () => store.put(A.cid, A.bytes)));
  assertEquals(store.size, 1);
  for (let i = 0; i < 19; i++) await store.release(A.cid);
  await store.forget(A.cid);
  assertEquals(await store.get(A.cid), A.bytes);
  await store.release(A.cid);
  await store.forget(A.cid);
  assertEquals(store.size, 0);
});
