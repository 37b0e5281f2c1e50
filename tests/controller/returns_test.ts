// What a relay that comes back is told of its last frame.
import { assertEquals, assertThrows } from "@std/assert";
import { Results } from "../../controller/results.ts";
import { Returns } from "../../controller/returns.ts";
import type { SlotReader } from "../../frames/slot.ts";
import { WireError } from "../../wire/errors.ts";

const standing = (sent: number, pending: boolean, more = {}) => ({
  instance: 5,
  session: 0,
  round: 0,
  sent,
  pending,
  ...more,
});

Deno.test("returns: each history has its answer", () => {
  const kept = new Set([2]);
  const judge = (returns: Returns, sent: number, pending: boolean, round: number) =>
    returns.judge(standing(sent, pending), round, (of) => kept.has(of));
  const returns = new Returns();
  assertEquals(judge(returns, 0, false, 0), "new");
  assertEquals(judge(returns, 4, true, 0), "new");
  returns.enter(standing(4, true), 1);
  assertEquals(returns.key(5), 1);
  assertEquals(judge(returns, 4, true, 2), "again");
  returns.take(5, 2);
  assertEquals(returns.inRound(2), [5]);
  assertEquals(judge(returns, 4, true, 2), "held");
  assertEquals(judge(returns, 4, true, 3), "late");
  kept.clear();
  assertEquals(judge(returns, 4, true, 3), "lost");
  assertEquals(judge(returns, 4, false, 3), "back");
  assertEquals(judge(returns, 5, true, 3), "again");
  for (const [sent, pending] of [[3, true], [5, false], [6, true]] as const) {
    assertThrows(() => judge(returns, sent, pending, 3), WireError, `it has sent ${sent} frames`);
  }
});

Deno.test("returns: another controller's round that closed is not begun again", () => {
  const kept = () => false;
  const behind = standing(3, true, { session: 8, round: 6 });
  const ahead = standing(9, false, { instance: 6, session: 8, round: 7 });
  const before = new Returns();
  assertEquals(before.enter(ahead, 0), []);
  assertEquals(before.judge(behind, 0, kept), "lost");
  assertEquals(before.judge({ ...behind, round: 7 }, 0, kept), "new");
  assertEquals(before.judge({ ...behind, session: 9 }, 0, kept), "new");
  const after = new Returns();
  assertEquals(after.enter(behind, 1), []);
  assertEquals(after.enter(ahead, 0), [5]);
});

Deno.test("results: memory stays until everybody has it", async () => {
  const results = new Results();
  const record = new Uint8Array(3);
  let free = 0;
  const reader = results.keep(0, record, [1, 2], undefined);
  reader.whenDone(() => free++);
  results.settled(1);
  assertEquals([reader.done, results.has(0)], [false, true]);
  await results.send(0, (bytes) => {
    assertEquals(bytes, record);
    results.settled(2);
    // It is being read.
    assertEquals([reader.done, free], [false, 0]);
    return Promise.resolve();
  });
  assertEquals([reader.done, free, results.has(0)], [true, 1, false]);
  await results.send(0, () => Promise.reject(new Error("it is gone")));
});

Deno.test("results: only the last few stay for those who are away", () => {
  const results = new Results();
  const readers: SlotReader[] = [];
  for (let round = 0; round < 5; round++) {
    readers.push(results.keep(round, new Uint8Array(1), [round], undefined));
  }
  assertEquals(readers.map(({ done }) => done), [true, true, false, false, false]);
  assertEquals([1, 2, 4].map((round) => results.has(round)), [false, true, true]);
});

Deno.test("results: somebody else's reading counts too", () => {
  const results = new Results();
  let other = false;
  let free = 0;
  const actions: (() => void)[] = [];
  const reader = results.keep(0, new Uint8Array(1), [1], {
    get done() {
      return other;
    },
    whenDone: (action) => actions.push(action),
    abandon: () => other = true,
  });
  reader.whenDone(() => free++);
  results.settled(1);
  assertEquals([reader.done, free], [false, 0]);
  other = true;
  for (const action of actions) action();
  assertEquals([reader.done, free], [true, 1]);
});
