import { assertEquals } from "@std/assert";
import type { KernelName } from "../../kernels/kernel.ts";
import { formatLadder, pickKernels, type Rates } from "../../kernels/ladder.ts";

const MiB = 1 << 20;

/** Rates of simd, plain and ort-webgpu at 1, 2, 3 and 4 MiB; undefined where not measured. */
function rates(simd: number[], plain: number[], gpu: (number | undefined)[] = []): Rates {
  return new Map(simd.map((rate, i) => {
    const row: Partial<Record<KernelName, number>> = { simd: rate, plain: plain[i]! };
    if (gpu[i] !== undefined) row["ort-webgpu"] = gpu[i]!;
    return [(i + 1) * MiB, row];
  }));
}

const picks = (measured: Rates, gpu?: KernelName) =>
  pickKernels(measured, ["simd", "plain"], gpu).map(({ pick }) => pick);

Deno.test("the preferred CPU kernel stays unless another one is clearly faster", () => {
  assertEquals(picks(rates([10, 10, 10, 10], [9, 10.5, 12, 9])), [
    "simd",
    "simd",
    "plain",
    "simd",
  ]);
});

Deno.test("a GPU is picked from the size on from which it is always faster", () => {
  const cpu = [10, 10, 10, 10];
  const none = [1, 1, 1, 1];
  const G = "ort-webgpu";
  assertEquals(picks(rates(cpu, none, [1, 5, 20, 40]), G), ["simd", "simd", G, G]);
  assertEquals(picks(rates(cpu, none, [20, 5, 20, 40]), G), ["simd", "simd", G, G]);
  assertEquals(picks(rates(cpu, none, [20, 20, 20, 5]), G), ["simd", "simd", "simd", "simd"]);
  assertEquals(picks(rates(cpu, none, [20, 20, 20, 20]), G), [G, G, G, G]);
  // The margin of a lucky reading is not enough.
  assertEquals(picks(rates(cpu, none, [1, 1, 10.5, 10.5]), G), ["simd", "simd", "simd", "simd"]);
  // Sizes for which there was no time are as the last one for which there was.
  assertEquals(picks(rates(cpu, none, [1, 20, 20, undefined]), G), ["simd", G, G, G]);
  assertEquals(picks(rates(cpu, none, []), G), ["simd", "simd", "simd", "simd"]);
  // And without leave, never.
  assertEquals(picks(rates(cpu, none, [20, 20, 20, 20])), ["simd", "simd", "simd", "simd"]);
});

Deno.test("the table has a row a size, smallest first, and a dash where nothing was measured", () => {
  const measured = rates([10, 12.345], [1, 2], [undefined, 20]);
  const shuffled = new Map([...measured].reverse());
  assertEquals(
    formatLadder(pickKernels(shuffled, ["simd", "plain"], "ort-webgpu")).split("\n"),
    [
      "size of an input  simd GB/s  plain GB/s  ort-webgpu GB/s        pick",
      "           1 MiB       10.0        1.00                -        simd",
      "           2 MiB       12.3        2.00             20.0  ort-webgpu",
    ],
  );
});
