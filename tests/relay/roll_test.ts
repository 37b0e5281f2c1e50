// What a controller is told of who is here: each exit once, and none before the work it follows.
import { assertEquals } from "@std/assert";
import { FoldBarrier } from "../../fold/barrier.ts";
import { Roll } from "../../relay/roll.ts";

function start(ranks: readonly number[]) {
  const barrier = new FoldBarrier(ranks);
  const exits: number[] = [];
  const teller = {
    up: true,
    exit: (rank: number) => {
      exits.push(rank);
      return Promise.resolve();
    },
  };
  const roll = new Roll(barrier, teller, () => {});
  return { barrier, exits, teller, roll };
}

Deno.test("roll: an exit is told once, and again only after a return was told", () => {
  const { barrier, exits, roll } = start([0, 1]);
  assertEquals(roll.call([]), [0, 1]);
  for (const rank of [0, 1]) barrier.join(rank);
  barrier.leave(1);
  roll.left(1, false);
  roll.left(1, false);
  roll.turnedAway(1);
  assertEquals(exits, [1]);
  barrier.join(1);
  assertEquals([roll.isStale, roll.call([])], [true, [0, 1]]);
  assertEquals(roll.isStale, false);
  barrier.leave(1);
  roll.left(1, false);
  assertEquals(exits, [1, 1]);
});

Deno.test("roll: while nobody can be told, exits wait, and a return takes them back", () => {
  const { barrier, exits, teller, roll } = start([0, 1, 2]);
  teller.up = false;
  for (const rank of [0, 1, 2]) barrier.join(rank);
  for (const rank of [1, 2]) {
    barrier.leave(rank);
    roll.left(rank, false);
  }
  barrier.join(2);
  roll.takeBack(2);
  assertEquals(roll.call([]), [0, 1, 2]);
  teller.up = true;
  roll.tellDue();
  assertEquals(exits, [1]);
});

Deno.test("roll: one that waits to be let in is named, and its leaving is told", () => {
  const { barrier, exits, roll } = start([0, 1]);
  for (const rank of [0, 1]) barrier.join(rank);
  barrier.leave(1);
  assertEquals(roll.call([0]), [0]);
  assertEquals(roll.call([0, 1]), [0, 1]);
  roll.turnedAway(1);
  assertEquals(exits, [1]);
});
