import { assertEquals } from "@std/assert";
import { Arena } from "../../kernels/arena.ts";
import { tag64 } from "../../wire/mac.ts";
import { autoWorkers, LANE_BYTES, PooledTagger } from "../../workers/tagger.ts";
import { hex, SESSION_SALT as SALT } from "../vectors.ts";

/** Numbers from a seed (mulberry32), so that a failure can be had again. */
function random(seed: number): () => number {
  return () => {
    seed = (seed + 0x6d2b79f5) | 0;
    let t = Math.imul(seed ^ (seed >>> 15), 1 | seed);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}

function filled(arena: Arena, length: number, seed: number): Uint8Array<ArrayBufferLike> {
  const run = arena.alloc(length);
  const next = random(seed);
  for (let i = 0; i < length; i++) run[i] = next() * 256;
  return run;
}

Deno.test("lanes: threads and the loop give the tag of the same bytes, however they are split", async () => {
  const arena = new Arena();
  const tagger = new PooledTagger(SALT, arena.memory, 2);
  try {
    for (const length of [LANE_BYTES, LANE_BYTES + 1, 3_000_017]) {
      const bytes = filled(arena, length, length);
      const next = random(length + 1);
      const lane = tagger.open(length);
      for (let at = 0; at < length;) {
        const end = Math.min(length, at + 1 + Math.floor(next() * 400_000));
        lane.update(bytes.subarray(at, end));
        at = end;
      }
      assertEquals(hex(await lane.digest()), hex(tag64(SALT, bytes)));
    }
    const small = filled(arena, 1000, 5);
    const lane = tagger.open(1000);
    lane.update(small);
    assertEquals(hex(await lane.digest()), hex(tag64(SALT, small)));
  } finally {
    tagger.close();
  }
});

Deno.test("lanes: many at once, with bytes from outside the memory in between", async () => {
  const arena = new Arena();
  const tagger = new PooledTagger(SALT, arena.memory, 3);
  try {
    const runs = Array.from({ length: 9 }, (_, i) => filled(arena, LANE_BYTES + i * 1001, i));
    const outside = new TextEncoder().encode("a record's header");
    const lanes = runs.map((run) => tagger.open(run.length));
    lanes.forEach((lane) => lane.update(outside));
    runs.forEach((run, i) => {
      lanes[i]!.update(run.subarray(0, 70_000));
      lanes[i]!.update(outside);
      lanes[i]!.update(run.subarray(70_000));
    });
    const tags = await Promise.all(lanes.map((lane) => lane.digest()));
    tags.forEach((tag, i) => {
      const run = runs[i]!;
      const wanted = tag64(SALT, outside, run.subarray(0, 70_000), outside, run.subarray(70_000));
      assertEquals(hex(tag), hex(wanted));
    });
  } finally {
    tagger.close();
  }
});

Deno.test("lanes: a thread reads what the memory grew by after it started", async () => {
  const arena = new Arena();
  const tagger = new PooledTagger(SALT, arena.memory, 1);
  try {
    for (let i = 0; i < 20; i++) {
      const bytes = filled(arena, LANE_BYTES, i);
      const lane = tagger.open(LANE_BYTES);
      lane.update(bytes);
      assertEquals(hex(await lane.digest()), hex(tag64(SALT, bytes)), `run ${i}`);
    }
  } finally {
    tagger.close();
  }
});

Deno.test("lanes: one that is given up changes no other", async () => {
  const arena = new Arena();
  const tagger = new PooledTagger(SALT, arena.memory, 1);
  try {
    const bytes = filled(arena, LANE_BYTES, 1);
    const dropped = tagger.open(LANE_BYTES);
    dropped.update(bytes);
    dropped.abandon();
    dropped.abandon();
    const lane = tagger.open(LANE_BYTES);
    lane.update(bytes);
    assertEquals(hex(await lane.digest()), hex(tag64(SALT, bytes)));
  } finally {
    tagger.close();
  }
});

Deno.test("lanes: auto is a thread a core, none on a single core", () => {
  assertEquals([1, 2, 4, 64].map(autoWorkers), [0, 2, 4, 8]);
});
