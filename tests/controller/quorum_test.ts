// How few ranks a round may have, and how long a session waits for more.
import { assertEquals } from "@std/assert";
import { type Attendance, Quorum, type QuorumState } from "../../controller/quorum.ts";

const there = (ranks: number, more: Partial<Attendance> = {}): Attendance => ({
  ranks,
  begun: true,
  deserted: false,
  hopeful: false,
  ...more,
});
const nobody = (hopeful: boolean) => there(0, { begun: false, deserted: true, hopeful });

Deno.test("quorum: each look has its state and its wait", () => {
  const cases: [string, number, [number, Attendance, QuorumState, number][]][] = [
    ["enough ranks", 2, [[0, there(2), "enough", Infinity], [9, there(3), "enough", Infinity]]],
    ["too few, then enough, then too few again", 2, [
      [0, there(1), "short", 100],
      [60, there(1), "short", 40],
      [70, there(2), "enough", Infinity],
      [80, there(1), "short", 100],
      [180, there(1), "short", 0],
      [500, there(1), "short", 0],
    ]],
    ["nobody waits for a round that has not begun", 2, [
      [0, there(1, { begun: false }), "enough", Infinity],
      [500, there(1, { begun: false }), "enough", Infinity],
      [600, there(1), "short", 100],
    ]],
    ["the last have left behind their frames", 1, [
      [0, there(1, { deserted: true, hopeful: true }), "enough", Infinity],
    ]],
    ["nobody is left, and nobody may come", 1, [[5, nobody(false), "vacant", 0]]],
    ["nobody is left, and somebody may come", 1, [
      [5, nobody(true), "vacant", 100],
      [55, nobody(true), "vacant", 50],
      [60, nobody(false), "vacant", 0],
    ]],
    ["somebody came back", 1, [
      [5, nobody(true), "vacant", 100],
      [50, there(1, { begun: false }), "enough", Infinity],
      [90, nobody(true), "vacant", 100],
      [190, nobody(true), "vacant", 0],
    ]],
  ];
  for (const [name, least, looks] of cases) {
    const quorum = new Quorum(least, 100);
    for (const [now, attendance, state, wait] of looks) {
      assertEquals(quorum.look(attendance, now), wait, `${name} at ${now}`);
      assertEquals(quorum.state, state, `${name} at ${now}`);
    }
  }
  assertEquals(new Quorum(1, 0).look(nobody(true), 3), 0);
});
