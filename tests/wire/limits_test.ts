// The bounds of the wire, and the two kinds of error.
import { assert, assertEquals, assertThrows } from "@std/assert";
import { invariant, InvariantError, WireError } from "../../wire/errors.ts";
import {
  DEFAULT_FRAME_CEILING,
  frameCeilingFor,
  MAX_FRAME_BYTES,
  MIN_FRAME_CEILING,
} from "../../wire/limits.ts";
import { REFUSAL_MARK } from "../../wire/refusal.ts";

Deno.test("limits: a known model's ceiling is twice its bytes, between 64 MiB and what u32 can say", () => {
  const MiB = 1024 ** 2;
  const cases: [number, number][] = [
    [0, 64 * MiB],
    [4_000, 64 * MiB],
    [32 * MiB, 64 * MiB],
    [32 * MiB + 4, 64 * MiB + 8],
    [500 * MiB, 1_000 * MiB],
    [1_900 * MiB, 3_800 * MiB],
    [2_048 * MiB, MAX_FRAME_BYTES],
    [100_000 * MiB, MAX_FRAME_BYTES],
  ];
  for (const [model, ceiling] of cases) assertEquals(frameCeilingFor(model), ceiling, `${model}`);
  assertEquals(MIN_FRAME_CEILING, 64 * MiB);
  assertEquals(DEFAULT_FRAME_CEILING, 1024 * MiB);
  assert(MAX_FRAME_BYTES < REFUSAL_MARK, "a refusal's mark is not a length");
});

Deno.test("errors: a peer's and our own are told apart", () => {
  invariant(true, "holds");
  assertThrows(
    () => invariant(false, "two is one"),
    InvariantError,
    "broken invariant: two is one",
  );
  const error = new WireError("mac", "connection", "text");
  assert(!(error instanceof InvariantError));
  assertEquals([error.name, error.code, error.scope], ["WireError", "mac", "connection"]);
});
