// `deno task simulate`: one seed with all that happened, or many.
import { parseArgs } from "node:util";
import { simulateMany } from "./many.ts";
import { plant, PLANTS } from "./plants.ts";
import { simulate } from "./simulate.ts";

const HELP = `deno task simulate --seed N [--trace]     one seed
deno task simulate --seeds N [--from N] [--jobs N] [--for SECONDS]     many
deno task simulate --plants     how soon each planted bug is found`;

const { values } = parseArgs({
  options: {
    seed: { type: "string" },
    trace: { type: "boolean", default: false },
    seeds: { type: "string" },
    from: { type: "string", default: "1" },
    jobs: { type: "string", default: `${navigator.hardwareConcurrency}` },
    for: { type: "string" },
    plants: { type: "boolean", default: false },
    help: { type: "boolean", default: false },
  },
});

const whole = (name: string, text: string): number => {
  if (!/^\d{1,15}$/.test(text)) {
    console.error(`--${name} ${JSON.stringify(text)}: expected a whole number\n${HELP}`);
    Deno.exit(2);
  }
  return Number(text);
};
const jobs = whole("jobs", values.jobs);

if (values.plants) Deno.exit(await runPlants());
if (values.seed !== undefined) Deno.exit(await runOne(whole("seed", values.seed)));
if (values.seeds !== undefined || values.for !== undefined) Deno.exit(await runMany());
console.log(HELP);
Deno.exit(values.help ? 0 : 2);

async function runOne(seed: number): Promise<number> {
  const verdict = await simulate(seed, { trace: values.trace });
  for (const line of verdict.trace) console.log(line);
  for (const text of verdict.violations) console.log(`violation: ${text}`);
  console.log(
    `seed ${seed}: ${verdict.violations.length} violations, ${verdict.results} results, ` +
      `${verdict.faults} faults, ${verdict.ms} virtual ms, trace ${verdict.hash}`,
  );
  return verdict.violations.length === 0 ? 0 : 1;
}

async function runMany(): Promise<number> {
  const result = await simulateMany({
    from: whole("from", values.from),
    seeds: values.seeds === undefined ? 2 ** 40 : whole("seeds", values.seeds),
    jobs,
    ...values.for === undefined ? {} : { forMs: 1_000 * whole("for", values.for) },
    onVerdict: ({ seed, violations }) => {
      if (violations.length === 0) return;
      console.log(`seed ${seed}: ${violations.join("\n  ")}`);
      console.log(`  again: deno task simulate --seed ${seed} --trace`);
    },
  });
  const seconds = result.ms / 1_000;
  console.log(
    `${result.seeds} seeds, ${result.violations.length} of them with violations; ` +
      `${result.faults} faults, ${result.results} results, ` +
      `${(result.virtualMs / 3_600_000).toFixed(1)} virtual hours in ${seconds.toFixed(1)} s ` +
      `(${(result.seeds / seconds).toFixed(1)} seeds a second, ${jobs} processes)`,
  );
  return result.violations.length === 0 ? 0 : 1;
}

async function runPlants(): Promise<number> {
  let missed = 0;
  for (const bug of PLANTS) {
    const root = await plant(bug);
    try {
      const result = await simulateMany({ from: 1, seeds: bug.within, jobs, root, first: true });
      // A copy that does not run proves nothing.
      const found = result.violations.find(({ hash }) => hash !== "");
      if (found === undefined) missed++;
      console.log(
        `${bug.name}: ` +
          (found === undefined
            ? `not found in ${result.seeds} seeds`
            : `found by seed ${found.seed}: ${found.violations[0]!.split("\n")[0]}`),
      );
    } finally {
      await Deno.remove(root, { recursive: true });
    }
  }
  return missed === 0 ? 0 : 1;
}
