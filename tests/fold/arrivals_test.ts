import { assertEquals } from "@std/assert";
import { ArrivalLog } from "../../fold/arrivals.ts";

Deno.test("a round's frames are told in the order of arrival, from its first byte", () => {
  const log = new ArrivalLog();
  log.begins(2, 100);
  log.begins(0, 110);
  assertEquals([log.arriving(2), log.arriving(1)], [true, false]);
  log.arrives(0, 130);
  log.arrives(2, 150);
  log.arrives(1, 400);
  assertEquals([log.startedAtMs, log.delivered, log.arriving(2)], [100, [0, 2, 1], false]);
  assertEquals(log.close(), {
    startedAtMs: 100,
    frames: [
      { member: 0, beganMs: 10, arrivedMs: 30 },
      { member: 2, beganMs: 0, arrivedMs: 50 },
      { member: 1, beganMs: 300, arrivedMs: 300 },
    ],
    lagMs: 270,
    lagOfMedianMs: 250,
  });
});

for (const [arrivals, lag, lagOfMedian] of [[[5], 0, 0], [[5, 9], 4, 4], [[1, 2, 3, 9], 8, 7]]) {
  Deno.test(`the last of ${arrivals} is late by ${lag}, after the median by ${lagOfMedian}`, () => {
    const log = new ArrivalLog();
    (arrivals as number[]).forEach((at, member) => log.arrives(member, at));
    const { lagMs, lagOfMedianMs } = log.close();
    assertEquals([lagMs, lagOfMedianMs], [lag, lagOfMedian]);
  });
}

Deno.test("a frame of the next round may begin before this one is over", () => {
  const log = new ArrivalLog();
  log.arrives(0, 10);
  log.begins(1, 12);
  assertEquals(log.close().frames.map(({ member }) => member), [0]);
  assertEquals(log.startedAtMs, 12);
  log.arrives(1, 20);
  assertEquals(log.close(), {
    startedAtMs: 12,
    frames: [{ member: 1, beganMs: 0, arrivedMs: 8 }],
    lagMs: 0,
    lagOfMedianMs: 0,
  });
});

Deno.test("a frame that is refused is forgotten", () => {
  const log = new ArrivalLog();
  log.arrives(0, 10);
  log.arrives(1, 90);
  log.forget(1);
  assertEquals(log.close().lagMs, 0);
});
