// Every decoder under edited bytes: it gives a value or an error of its own, leaves its input alone, says
// the same again, and takes no memory for what a length only announces.
import { assert, assertEquals, AssertionError } from "@std/assert";
import * as fc from "fast-check";
import { edit, editedAll, withWords } from "./bytes.ts";
import { type Decoder, DECODERS, ELSEWHERE } from "./decoders.ts";

const ROOT = new URL("../../", import.meta.url);
const FOLDERS = ["wire", "frames", "delta", "controller/state", "controller/passes"];
const FILES = ["kernels/ladder_cache.ts", "cli/manifest.ts", "cli/salt.ts"];
const DECODER =
  /^export (?:async )?(?:function|class) ((?:decode|parse|open|verify|read|receive|load|is|check)[A-Z]\w*|\w+(?:Parser|Reader)\b)/gm;

/** How often each decoder is run; more for a long night. */
const RUNS = Number(Deno.env.get("TIERFOLD_FUZZ_RUNS") ?? 200);
/** What one call may take at most, in bytes: a length that is believed takes far more. */
const MEMORY_BYTES = 16 * 1024 ** 2;

Deno.test("fuzz: every decoder of the sources is in the table", async () => {
  const files = [...FILES];
  for (const folder of FOLDERS) {
    for await (const { name } of Deno.readDir(new URL(`${folder}/`, ROOT))) {
      if (name.endsWith(".ts")) files.push(`${folder}/${name}`);
    }
  }
  const found: string[] = [];
  for (const file of files) {
    const text = await Deno.readTextFile(new URL(file, ROOT));
    for (const [, name] of text.matchAll(DECODER)) found.push(`${file} ${name}`);
  }
  assert(found.length > 25, `only ${found.length} decoders found: the pattern has lost its way`);
  const known = [...Object.keys(DECODERS), ...Object.keys(ELSEWHERE)];
  assertEquals(found.filter((name) => !known.includes(name)), [], "in neither list of decoders.ts");
  // The schema is a constant, and the length of a refusal's text begins with no verb.
  const odd = ["controller/passes/schemas.ts startSchema", "wire/refusal.ts refusalTextLength"];
  assertEquals(known.filter((name) => !found.includes(name) && !odd.includes(name)), []);
});

/** What a call comes to: its value, or the name and message of an error that it may throw. */
async function outcome({ run, errors }: Decoder, bytes: Uint8Array): Promise<unknown> {
  try {
    return { value: await run(bytes) };
  } catch (error) {
    if (!errors.some((kind) => error instanceof kind)) {
      throw new AssertionError(`threw ${error instanceof Error ? error.stack : error}`);
    }
    // Files have other names each time.
    return { error: (error as Error).constructor.name };
  }
}

for (const [name, decoder] of Object.entries(DECODERS)) {
  Deno.test(`fuzz: ${name}`, async (t) => {
    await t.step("its samples are read or refused as they should be", async () => {
      for (const sample of decoder.samples) await outcome(decoder, sample);
      // At least one of them means something, or edits would never get far.
      const values = await Promise.all(decoder.samples.map((sample) => outcome(decoder, sample)));
      assert(values.some((value) => Object.hasOwn(value as object, "value")), "all are refused");
    });
    await t.step("edited bytes", async () => {
      const property = fc.asyncProperty(
        fc.constantFrom(...decoder.samples),
        fc.array(edit, { minLength: 1, maxLength: 4 }),
        async (sample, edits) => {
          const bytes = editedAll(sample, edits, decoder.samples);
          const before = bytes.slice();
          const first = await outcome(decoder, bytes);
          assertEquals(bytes, before, "its input was changed");
          assertEquals(await outcome(decoder, bytes), first, "the same bytes, another outcome");
        },
      );
      const numRuns = decoder.runFile ? Math.ceil(RUNS / 10) : RUNS;
      await fc.assert(property, { numRuns, ...seedOf() });
    });
    await t.step("announced lengths cost no memory", async () => {
      for (const sample of decoder.samples.slice(0, 2)) {
        for (const bytes of withWords(decoder.runFile ? sample.subarray(0, 16) : sample)) {
          const before = used();
          await outcome(decoder, bytes);
          const taken = used() - before;
          assert(taken < MEMORY_BYTES, `${taken} bytes of memory for ${bytes.length} of input`);
        }
      }
    });
  });
}

function used(): number {
  const { heapUsed, external } = Deno.memoryUsage();
  return heapUsed + external;
}

/** The seed to replay, where one is given. */
function seedOf(): { seed?: number } {
  const seed = Deno.env.get("TIERFOLD_FUZZ_SEED");
  return seed === undefined ? {} : { seed: Number(seed) };
}
