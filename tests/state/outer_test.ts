import { assert, assertEquals } from "@std/assert";
import { OuterOptimizer, type OuterOptions } from "../../controller/state/outer.ts";

const NESTEROV: OuterOptions = { name: "nesterov", rate: 0.7, momentum: 0.9 };
const FEDADAM: OuterOptions = { name: "fedadam", rate: 0.1, beta1: 0.9, beta2: 0.99, tau: 1e-3 };

function bytes(values: Float32Array): Uint8Array {
  return new Uint8Array(values.buffer, values.byteOffset, values.byteLength);
}

/** One step over all values; gives what comes after it. */
function step(
  outer: OuterOptimizer,
  average: number[],
  previous: Float32Array,
): Float32Array<ArrayBuffer> {
  const values = Float32Array.from(average);
  outer.step(bytes(values), bytes(previous), 0);
  return values;
}

const f32 = Math.fround;

Deno.test("outer: nesterov, two steps by hand", () => {
  const outer = new OuterOptimizer(NESTEROV, 2);
  let x = Float32Array.of(1, -2);
  let [b0, b1] = [0, 0];
  for (const average of [[0.5, -1], [0.25, 3]]) {
    const g = [x[0]! - average[0]!, x[1]! - average[1]!];
    b0 = f32(0.9 * b0 + g[0]!);
    b1 = f32(0.9 * b1 + g[1]!);
    const wanted = [
      f32(x[0]! - 0.7 * (g[0]! + 0.9 * b0)),
      f32(x[1]! - 0.7 * (g[1]! + 0.9 * b1)),
    ];
    x = step(outer, average, x);
    assertEquals([...x], wanted);
    assertEquals([...outer.state.get("momentum")!], [b0, b1]);
  }
});

Deno.test("outer: nesterov without momentum and with rate 1 is the average", () => {
  const outer = new OuterOptimizer({ name: "nesterov", rate: 1, momentum: 0 }, 3);
  const average = [0.5, 1024, -3];
  assertEquals([...step(outer, average, Float32Array.of(1, 2, 3))], average);
});

Deno.test("outer: fedadam, two steps by hand, from v = tau^2", () => {
  const outer = new OuterOptimizer(FEDADAM, 1);
  let x = Float32Array.of(1);
  let [m, v] = [0, f32(1e-6)];
  for (const average of [0.5, 2]) {
    const d = average - x[0]!;
    m = f32(0.9 * m + (1 - 0.9) * d);
    v = f32(0.99 * v + (1 - 0.99) * (d * d));
    const wanted = f32(x[0]! + 0.1 * m / (Math.sqrt(v) + 1e-3));
    x = step(outer, [average], x);
    assertEquals(x[0], wanted);
    assertEquals([outer.state.get("m")![0], outer.state.get("v")![0]], [m, v]);
  }
});

Deno.test("outer: average keeps no state and changes nothing", () => {
  const outer = new OuterOptimizer({ name: "average" }, 3);
  assertEquals(outer.state.size, 0);
  assertEquals([...step(outer, [1, -0, NaN], Float32Array.of(4, 5, 6))], [1, -0, NaN]);
});

Deno.test("outer: a minimum is approached where averages pull towards it", () => {
  for (const options of [NESTEROV, FEDADAM]) {
    const outer = new OuterOptimizer(options, 1);
    let x = Float32Array.of(10);
    // Ranks that each go a fifth of the way to 3.
    for (let i = 0; i < 400; i++) x = step(outer, [x[0]! - 0.2 * (x[0]! - 3)], x);
    assert(Math.abs(x[0]! - 3) < 0.05, `${options.name} ended at ${x[0]}`);
  }
});

Deno.test("outer: the bits do not depend on pieces or alignment", () => {
  const n = 5_003;
  const value = (i: number) => Math.sin(i * 12.9898) * 43_758.5453 % 7;
  for (const options of [NESTEROV, FEDADAM]) {
    const whole = new OuterOptimizer(options, n);
    const pieces = new OuterOptimizer(options, n);
    let a = Float32Array.from({ length: n }, (_, i) => value(i));
    let b = a;
    for (let round = 0; round < 3; round++) {
      const average = Float32Array.from({ length: n }, (_, i) => value(i + 31 * round + 7));
      const odd = new Uint8Array(4 * n + 1).subarray(1);
      odd.set(bytes(average));
      for (let from = 0; from < n; from += 1_700) {
        const to = Math.min(from + 1_700, n);
        pieces.step(odd.subarray(4 * from, 4 * to), bytes(b).subarray(4 * from, 4 * to), from);
      }
      b = new Float32Array(odd.slice().buffer);
      whole.step(bytes(average), bytes(a), 0);
      a = average;
      assertEquals(bytes(a), bytes(b));
    }
    for (const [name, vector] of whole.state) assertEquals(pieces.state.get(name), vector);
  }
});
