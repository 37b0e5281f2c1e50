// Where a relay stands across its channels: which frame is sent again, and which never.
import { assertEquals, assertThrows } from "@std/assert";
import { Standing } from "../../relay/standing.ts";
import { InvariantError, WireError } from "../../wire/errors.ts";

Deno.test("standing: frames and results in turn", () => {
  const standing = new Standing(7);
  assertEquals(standing.hello(), {
    instance: 7,
    session: 0,
    round: 0,
    sent: 0,
    pending: false,
  });
  assertEquals(standing.acknowledge({ session: 9, round: 4, fate: "none" }), false);
  standing.ship();
  assertEquals(standing.hello(), {
    instance: 7,
    session: 9,
    round: 4,
    sent: 1,
    pending: true,
  });
  assertThrows(() => standing.ship(), InvariantError);
  standing.result();
  assertEquals([standing.round, standing.pending], [5, false]);
  assertThrows(() => standing.result(), InvariantError);
});

Deno.test("standing: a frame that never came keeps its number when it is sent again", () => {
  const standing = new Standing(7);
  standing.ship();
  standing.hello();
  assertEquals(standing.acknowledge({ session: 1, round: 3, fate: "again" }), true);
  assertEquals(standing.hello().sent, 0);
  standing.ship();
  const { sent, round } = standing.hello();
  assertEquals([sent, round], [1, 3]);
  assertEquals(standing.acknowledge({ session: 1, round: 3, fate: "held" }), false);
  assertEquals(standing.pending, true);
});

Deno.test("standing: a frame made ready between Hello and its answer is sent again", () => {
  const standing = new Standing(7);
  standing.hello();
  standing.ship();
  assertEquals(standing.acknowledge({ session: 1, round: 0, fate: "none" }), true);
  assertEquals(standing.pending, false);
});

Deno.test("standing: an answer that does not fit is refused", () => {
  for (const place of [undefined, { session: 1, round: 0, fate: "none" } as const]) {
    const standing = new Standing(7);
    standing.ship();
    standing.hello();
    assertThrows(
      () => standing.acknowledge(place),
      WireError,
      "it does not say what became of the frame",
    );
  }
  for (const fate of ["again", "held"] as const) {
    const standing = new Standing(7);
    standing.hello();
    assertThrows(
      () => standing.acknowledge({ session: 1, round: 0, fate }),
      WireError,
      `it speaks of a frame as "${fate}"`,
    );
  }
  // A controller that does not speak of rounds is enough where nothing is due.
  const standing = new Standing(7);
  standing.hello();
  assertEquals(standing.acknowledge(undefined), false);
});
