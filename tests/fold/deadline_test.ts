import { assertEquals, assertThrows } from "@std/assert";
import { RoundDeadline } from "../../fold/deadline.ts";
import { InvariantError } from "../../wire/errors.ts";

/** A round's spread; a deadline it ran into is written as `{ missed }`. */
type Round = number | { missed: number };

const times = (count: number, ...rounds: Round[]) => Array.from({ length: count }, () => rounds);

const table: { name: string; rounds: Round[]; floorMs?: number; capMs?: number; after: number }[] =
  [
    { name: "nothing is known", rounds: [], after: 60_000 },
    { name: "too little is known", rounds: times(7, 50).flat(), after: 60_000 },
    { name: "four times the usual spread", rounds: times(8, 50).flat(), after: 200 },
    { name: "not below the floor", rounds: times(8, 1).flat(), after: 100 },
    { name: "not above the cap", rounds: times(8, 50_000).flat(), after: 60_000 },
    {
      name: "one odd round of many does not count",
      rounds: [...times(39, 50).flat(), 9_000],
      after: 200,
    },
    {
      name: "what happens in every tenth round does",
      rounds: times(4, 50, 50, 50, 50, 50, 50, 50, 50, 50, 2_000).flat(),
      after: 8_000,
    },
    {
      name: "a missed deadline counts, however rare",
      rounds: [...times(63, 50).flat(), { missed: 200 }],
      after: 800,
    },
    {
      name: "missed again and again, it comes to the cap",
      rounds: [...times(8, 50).flat(), { missed: 200 }, { missed: 800 }, { missed: 20_000 }],
      after: 60_000,
    },
    {
      name: "a missed deadline is forgotten",
      rounds: [{ missed: 20_000 }, ...times(64, 50).flat()],
      after: 200,
    },
    {
      name: "what was slow is forgotten",
      rounds: [...times(64, 5_000).flat(), ...times(64, 50).flat()],
      after: 200,
    },
  ];

for (const { name, rounds, floorMs = 100, capMs = 60_000, after } of table) {
  Deno.test(`adaptive deadline: ${name}`, () => {
    const deadline = new RoundDeadline({ floorMs, capMs });
    for (const round of rounds) {
      if (typeof round === "number") deadline.closed("model", round);
      else deadline.closed("model", 10, round.missed);
    }
    assertEquals(deadline.after("model"), after);
  });
}

Deno.test("rounds of different kinds have their own deadlines", () => {
  const deadline = new RoundDeadline({ floorMs: 1, capMs: 60_000 });
  for (let i = 0; i < 8; i++) {
    deadline.closed("control", 2);
    deadline.closed("model", 500);
  }
  assertEquals([deadline.after("control"), deadline.after("model")], [8, 2_000]);
});

Deno.test("without a floor the deadline is fixed", () => {
  const deadline = new RoundDeadline({ capMs: 300 });
  for (let i = 0; i < 20; i++) deadline.closed("model", 1);
  assertEquals([deadline.adaptive, deadline.after("model")], [false, 300]);
});

Deno.test("a floor above the cap is our own fault", () => {
  assertThrows(() => new RoundDeadline({ floorMs: 2, capMs: 1 }), InvariantError);
});
