import { assert, assertEquals, assertStrictEquals, assertThrows } from "@std/assert";
import * as fc from "fast-check";
import { FoldBarrier, type MemberState } from "../../fold/barrier.ts";
import type { HeldFrame } from "../../fold/frame_fold.ts";
import { InvariantError } from "../../wire/errors.ts";
import { held } from "./frames.ts";

const frames = new Map([0, 1, 2, 3, 4, 5].map((member) => [member, held([[1]], () => member)]));
const odd = held([[2]]);

/** A barrier driven by a script such as `join 0, deliver 0, leave 1`. */
function scripted(members: number[], script: string): FoldBarrier {
  const barrier = new FoldBarrier(members);
  for (const step of script.split(",").map((part) => part.trim()).filter(Boolean)) {
    const [verb, number] = step.split(" ");
    const member = Number(number);
    if (verb === "join") barrier.join(member);
    else if (verb === "deliver") barrier.deliver(member, frames.get(member)!);
    else if (verb === "odd") barrier.deliver(member, odd);
    else if (verb === "leave") barrier.leave(member);
    else if (verb === "take") barrier.takeReady();
    else if (verb === "expect") barrier.expect(member);
    else if (verb === "seal") barrier.seal();
    else if (verb === "close") barrier.close();
    else throw new Error(`no step ${step}`);
  }
  return barrier;
}

/** Which members' frames are ready, by their values. */
function ready(barrier: FoldBarrier, atLeast?: number): number[] {
  return barrier.takeReady(atLeast).map((frame) => membersOf([frame])[0]!);
}

function membersOf(list: HeldFrame[]): number[] {
  return list.map((frame) => [...frames].find(([, known]) => known === frame)![0]);
}

interface Row {
  script: string;
  state?: Partial<Record<number, MemberState>>;
  awaited: number[];
  contributors: number[];
  /** Of: open, complete, deserted, contested, sealed. */
  flags: string;
}

Deno.test("barrier: an event table of three members", async (t) => {
  const rows: Row[] = [
    { script: "", awaited: [0, 1, 2], contributors: [], flags: "open" },
    {
      script: "join 1",
      state: { 0: "expected", 1: "idle", 2: "expected" },
      awaited: [0, 1, 2],
      contributors: [],
      flags: "open",
    },
    {
      script: "join 1, deliver 1",
      state: { 1: "delivered" },
      awaited: [0, 2],
      contributors: [1],
      flags: "",
    },
    // An expected member joins at any time.
    {
      script: "join 1, deliver 1, join 0, join 2",
      awaited: [0, 2],
      contributors: [1],
      flags: "",
    },
    {
      script: "join 1, deliver 1, leave 0, leave 2",
      state: { 0: "gone", 2: "gone" },
      awaited: [],
      contributors: [1],
      flags: "complete",
    },
    // What a member delivered stays when it leaves.
    {
      script: "join 1, deliver 1, leave 1, leave 0",
      state: { 1: "gone" },
      awaited: [2],
      contributors: [1],
      flags: "",
    },
    {
      script: "join 1, deliver 1, leave 1, leave 0, leave 2",
      awaited: [],
      contributors: [1],
      flags: "complete deserted",
    },
    { script: "leave 0, leave 1, leave 2", awaited: [], contributors: [], flags: "open deserted" },
    {
      script: "leave 0, leave 1, leave 2, join 1",
      state: { 1: "idle" },
      awaited: [1],
      contributors: [],
      flags: "open",
    },
    {
      script: "join 0, join 1, join 2, deliver 2, deliver 0, deliver 1, seal",
      state: { 0: "delivered" },
      awaited: [],
      contributors: [0, 1, 2],
      flags: "sealed",
    },
    {
      script: "join 0, join 1, join 2, deliver 2, deliver 0, deliver 1, seal, leave 1, close",
      state: { 0: "idle", 1: "gone", 2: "idle" },
      awaited: [0, 2],
      contributors: [],
      flags: "open",
    },
    {
      script: "join 0, join 1, join 2, deliver 0, odd 2",
      awaited: [1],
      contributors: [0, 2],
      flags: "contested",
    },
    {
      script: "expect 7, join 7",
      state: { 7: "idle", 9: "gone" },
      awaited: [0, 1, 2, 7],
      contributors: [],
      flags: "open",
    },
  ];
  for (const { script, state = {}, awaited, contributors, flags } of rows) {
    await t.step(script || "nothing", () => {
      const barrier = scripted([0, 1, 2], script);
      for (const [member, wanted] of Object.entries(state)) {
        assertEquals(barrier.state(Number(member)), wanted, `member ${member}`);
      }
      assertEquals(barrier.awaited, awaited);
      assertEquals(barrier.contributors, contributors);
      for (const member of contributors) assert(barrier.holds(member));
      const names = [
        barrier.open && "open",
        barrier.complete && "complete",
        barrier.deserted && "deserted",
        barrier.contested && "contested",
        barrier.phase === "sealed" && "sealed",
      ];
      assertEquals(names.filter(Boolean).join(" "), flags);
    });
  }
});

Deno.test("barrier: frames are ready in order, up to the first member that is awaited, once", () => {
  const barrier = scripted([0, 1, 2, 3], "join 0, join 1, join 2, join 3, deliver 2, deliver 3");
  assertEquals(ready(barrier), []);
  barrier.deliver(0, frames.get(0)!);
  assertEquals(ready(barrier, 2), []);
  assertEquals(ready(barrier), [0]);
  assertEquals(ready(barrier), []);
  barrier.leave(1);
  assertEquals(ready(barrier, 3), []);
  assertEquals(ready(barrier, 2), [2, 3]);
  barrier.seal();
  assertEquals(ready(barrier), []);
  assertEquals(barrier.round, 0);
  barrier.close();
  assertEquals([barrier.round, barrier.awaited], [1, [0, 2, 3]]);
});

Deno.test("barrier: a contest holds frames back; once settled all are ready again", () => {
  const barrier = scripted([0, 1, 2], "join 0, join 1, join 2, deliver 0, take, odd 1, deliver 2");
  assertEquals([barrier.contested, barrier.complete], [true, true]);
  assertEquals(ready(barrier), []);
  barrier.discard(1);
  barrier.settle();
  assertEquals(ready(barrier), [0, 2]);
  assertEquals([barrier.contributors, barrier.contested], [[0, 2], false]);
});

Deno.test("barrier: what must not happen is a broken invariant, and changes nothing", async (t) => {
  const rows: [script: string, act: (barrier: FoldBarrier) => void][] = [
    ["join 0", (barrier) => barrier.join(0)],
    ["join 0, deliver 0", (barrier) => barrier.deliver(0, odd)],
    ["", (barrier) => barrier.deliver(0, odd)],
    ["leave 0", (barrier) => barrier.deliver(0, odd)],
    ["join 0, join 1, deliver 0, leave 1", (barrier) => barrier.join(1)],
    ["join 0, deliver 0, leave 0", (barrier) => barrier.join(0)],
    ["", (barrier) => barrier.seal()],
    ["join 0, deliver 0", (barrier) => barrier.seal()],
    ["join 0, deliver 0", (barrier) => barrier.close()],
    ["join 0, deliver 0, leave 1, seal", (barrier) => barrier.seal()],
    ["join 0, deliver 0, leave 1, seal", (barrier) => barrier.discard(0)],
    ["join 0, deliver 0, leave 1, seal", (barrier) => barrier.join(1)],
    ["join 0, deliver 0, leave 1, seal", (barrier) => barrier.expect(1)],
    ["join 0", (barrier) => barrier.frame(0)],
  ];
  for (const [script, act] of rows) {
    await t.step(`${script}; ${act}`, () => {
      const barrier = scripted([0, 1], script);
      const before = JSON.stringify(look(barrier));
      assertThrows(() => act(barrier), InvariantError);
      assertEquals(JSON.stringify(look(barrier)), before);
    });
  }
});

function look(barrier: FoldBarrier) {
  const { round, phase, live, awaited, contributors, open, complete, deserted, contested } =
    barrier;
  return { round, phase, live, awaited, contributors, open, complete, deserted, contested };
}

Deno.test("barrier: whatever comes, it keeps its promises", () => {
  const members = [0, 1, 2, 3, 4];
  const event = fc.record({
    what: fc.constantFrom("join", "join", "deliver", "deliver", "deliver", "odd", "leave", "take"),
    member: fc.constantFrom(...members),
    atLeast: fc.integer({ min: 1, max: 4 }),
  });
  fc.assert(
    fc.property(fc.array(event, { maxLength: 120 }), (events) => {
      const barrier = new FoldBarrier(members);
      /** What each member has given to this round. */
      const given = new Map<number, HeldFrame>();
      const left = new Set<number>();
      let taken: number[] = [];
      for (const { what, member, atLeast } of events) {
        const state = barrier.state(member);
        if (what === "join") {
          const may = state === "expected" || (state === "gone" && barrier.open);
          if (may) barrier.join(member);
          else assertThrows(() => barrier.join(member), InvariantError);
        } else if (what === "deliver" || what === "odd") {
          assertEquals(barrier.maySend(member), barrier.phase === "gathering" && state === "idle");
          if (!barrier.maySend(member)) continue;
          const frame = what === "odd" ? { ...odd } : frames.get(member)!;
          barrier.deliver(member, frame);
          given.set(member, frame);
        } else if (what === "leave") {
          assertEquals(barrier.leave(member), given.has(member));
          left.add(member);
        } else {
          const before = barrier.awaited[0] ?? Infinity;
          const list = barrier.takeReady(atLeast);
          if (barrier.contested) assertEquals(list.length, 0);
          const fresh = list.map((frame) => [...given].find(([, known]) => known === frame)![0]);
          for (const one of fresh) assert(one < before, `${one} passed ${before}`);
          assert(fresh.length === 0 || fresh.length >= atLeast);
          taken.push(...fresh);
          assertEquals(taken, [...new Set(taken)].sort((a, b) => a - b));
        }
        assertEquals(barrier.contributors, [...given.keys()].sort((a, b) => a - b));
        for (const [one, frame] of given) assertStrictEquals(barrier.frame(one), frame);
        assertEquals(
          barrier.contested,
          new Set([...given.values()].map((f) => f.header === odd.header)).size > 1,
        );
        assertEquals(barrier.complete, given.size > 0 && barrier.awaited.length === 0);
        assertEquals(barrier.open, given.size === 0);
        assertEquals(
          [...barrier.live, ...members.filter((one) => barrier.state(one) === "expected")].length,
          members.filter((one) => barrier.state(one) !== "gone").length,
        );
        if (!barrier.complete) continue;
        if (barrier.contested) {
          for (const [one, frame] of given) {
            if (frame !== odd) continue;
            barrier.discard(one);
            given.delete(one);
          }
          barrier.settle();
          taken = [];
        }
        // Nobody is awaited, so that every frame that was not taken yet is ready.
        taken.push(...membersOf(barrier.takeReady()).filter((one) => one >= 0));
        assertEquals(taken, [...given.keys()].sort((a, b) => a - b));
        const { round } = barrier;
        barrier.seal();
        assertEquals([barrier.maySend(member), barrier.open, barrier.complete], [
          false,
          false,
          false,
        ]);
        barrier.close();
        assertEquals([barrier.round, barrier.contributors], [round + 1, []]);
        given.clear();
        taken = [];
      }
    }),
    { numRuns: 300 },
  );
});
