import { assertEquals, assertRejects, assertThrows } from "@std/assert";
import { Sitting, type SittingOptions } from "../../serve/sitting.ts";
import type { Connection } from "../../transport/connection.ts";
import type { Listener } from "../../transport/network.ts";
import { Pipe } from "../../transport/pipe.ts";
import { InvariantError } from "../../wire/errors.ts";

/** Accepts the connections that the test puts in, until it is closed. */
class Door implements Listener {
  readonly address = { hostname: "door", port: 1 };
  readonly #closed = Promise.withResolvers<void>();
  serve: (connection: Connection) => void = () => {};

  accept(serve: (connection: Connection) => void): Promise<void> {
    this.serve = serve;
    return this.#closed.promise;
  }

  close(): void {
    this.#closed.resolve();
  }
}

function sitting(options: Partial<SittingOptions> = {}): Sitting {
  return new Sitting({
    turn: () => Promise.resolve(),
    over: () => {},
    greet: () => ({ run: () => Promise.resolve(), abandon: () => {} }),
    acceptFailed: () => {},
    ...options,
  });
}

const never = new AbortController().signal;

Deno.test("sitting: turns come one at a time, and none is lost that was asked for in between", async () => {
  let turns = 0;
  let inside = 0;
  const one: Sitting = sitting({
    turn: async () => {
      assertEquals(++inside, 1);
      await Promise.resolve();
      if (++turns === 1) one.pump();
      if (turns === 2) one.end();
      inside--;
    },
  });
  await one.serve(new Door(), never, () => {
    one.pump();
    one.pump();
  });
  assertEquals([turns, one.over], [2, true]);
});

Deno.test("sitting: a failed task ends the session with its error, once, and all are waited for", async () => {
  const told: unknown[] = [];
  const one = sitting({ over: (error) => told.push(error) });
  const slow = Promise.withResolvers<void>();
  let settled = false;
  const bad = new Error("bad");
  const serving = assertRejects(
    () =>
      one.serve(new Door(), never, () => {
        one.track(slow.promise.then(() => void (settled = true)));
        one.track(Promise.reject(bad));
        one.track(Promise.reject(new Error("worse")));
      }),
    Error,
    "bad",
  );
  setTimeout(() => slow.resolve(), 20);
  await serving;
  assertEquals([settled, told], [true, [bad]]);
});

Deno.test("sitting: a broken invariant is not told to anybody as a lost peer: it is thrown", () => {
  const told: unknown[] = [];
  const one = sitting({ over: (error) => told.push(error) });
  assertThrows(() => one.end(new InvariantError("ours")), InvariantError, "ours");
  assertEquals(told, []);
});

Deno.test("sitting: connections are served, and abandoned when the session is aborted", async () => {
  const door = new Door();
  const abandoned: string[] = [];
  const one = sitting({
    greet: ({ peer }) => {
      const done = Promise.withResolvers<void>();
      return {
        run: () => done.promise,
        abandon: () => {
          abandoned.push(peer);
          done.resolve();
        },
      };
    },
  });
  const abort = new AbortController();
  const serving = assertRejects(
    () => one.serve(door, abort.signal, () => door.serve(new Pipe().ends[0])),
    Error,
    "enough",
  );
  abort.abort(new Error("enough"));
  await serving;
  assertEquals(abandoned, ["pipe:1"]);
});
