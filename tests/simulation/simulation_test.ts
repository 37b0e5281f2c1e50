// The whole product in virtual time: seeds without a violation, and planted bugs that do not stay hidden.
import { assert, assertEquals, assertNotEquals } from "@std/assert";
import { simulateMany } from "./many.ts";
import { plant, PLANTS } from "./plants.ts";
import { simulate } from "./simulate.ts";

const jobs = navigator.hardwareConcurrency;

Deno.test("simulation: the same seed has the same trace, another one another", async () => {
  const once = await simulate(5, { trace: true });
  const again = await simulate(5);
  const other = await simulate(6);
  assertEquals(once.violations, []);
  assert(once.results > 0 && once.trace.length > 100, `${once.trace.length} lines`);
  assertEquals(again, { ...once, trace: [] });
  assertNotEquals(other.hash, once.hash);
});

Deno.test("simulation: as many seeds as fit in 20 s, none with a violation", async () => {
  const seconds = Number(Deno.env.get("TIERFOLD_SIMULATION_SECONDS") ?? 20);
  const result = await simulateMany({ from: 1, seeds: 2 ** 40, jobs, forMs: seconds * 1_000 });
  console.log(
    `${result.seeds} seeds, ${result.faults} faults, ${result.results} results in ${result.ms} ms`,
  );
  const texts = result.violations.map(({ seed, violations }) =>
    `${violations.join("\n  ")}\n  again: deno task simulate --seed ${seed} --trace`
  );
  assertEquals(texts, []);
  assert(result.seeds >= 10, `only ${result.seeds} seeds were run`);
});

for (const bug of PLANTS) {
  Deno.test(`simulation: planted: ${bug.name}: found within ${bug.within} seeds`, async () => {
    const root = await plant(bug);
    try {
      const { violations } = await simulateMany({
        from: 1,
        seeds: bug.within,
        jobs,
        root,
        first: true,
      });
      assert(violations.length > 0, `not found in ${bug.within} seeds`);
      // A copy that does not run proves nothing.
      assertNotEquals(violations[0]!.hash, "", violations[0]!.violations.join("\n"));
    } finally {
      await Deno.remove(root, { recursive: true });
    }
  });
}
