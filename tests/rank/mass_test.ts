import { assert, assertEquals, assertThrows } from "@std/assert";
import * as fc from "fast-check";
import { gammaMass, moverMass } from "../../mod.ts";

Deno.test("mass: steps to the power of gamma, 0 without a step whatever gamma is", () => {
  const rows: [steps: number, gamma: number | undefined, mass: number][] = [
    [0, undefined, 0],
    [0, 0, 0],
    [0, -1, 0],
    [-3, 1, 0],
    [-3, 0.5, 0],
    [1, 7, 1],
    [8, undefined, 8],
    [8, 1, 8],
    [8, 0, 1],
    [9, 0.5, 3],
    [4, 2, 16],
    [4, -1, 0.25],
    [0.5, 1, 0.5],
  ];
  for (const [steps, gamma, mass] of rows) assertEquals(gammaMass(steps, gamma), mass);
  for (const [steps, gamma] of [[NaN, 1], [Infinity, 1], [1, NaN], [1, -Infinity]] as const) {
    const { message } = assertThrows(() => gammaMass(steps, gamma), RangeError);
    assertEquals(message, `the mass of ${steps} steps with gamma ${gamma}: both must be finite`);
  }
});

Deno.test("mass: gamma from 0 to 1 leads from equal ranks to ranks by work", () => {
  fc.assert(fc.property(
    fc.integer({ min: 1, max: 10_000 }),
    fc.integer({ min: 1, max: 10_000 }),
    fc.double({ min: 0, max: 1, noNaN: true }),
    (more, fewer, gamma) => {
      const [a, b] = more > fewer ? [more, fewer] : [fewer, more];
      const ratio = gammaMass(a, gamma) / gammaMass(b, gamma);
      assert(ratio >= 1 - 1e-12 && ratio <= a / b + 1e-9);
    },
  ));
});

Deno.test("mass: buffers move with whoever made a step", () => {
  for (const [steps, mass] of [[0, 0], [-1, 0], [1, 1], [500, 1], [0.1, 1], [NaN, 0]]) {
    assertEquals(moverMass(steps!), mass);
  }
});
