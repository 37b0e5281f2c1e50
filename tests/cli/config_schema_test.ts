// The config file's JSON Schema against the program: what the one takes, the other takes.
import { assert, assertEquals, assertStringIncludes, assertThrows } from "@std/assert";
import { Ajv2020 } from "ajv/2020";
import { configSchema } from "../../cli/config_schema.ts";
import { controllerProgram } from "../../cli/controller_options.ts";
import { resolveOptions } from "../../cli/options.ts";
import { relayProgram } from "../../cli/relay_options.ts";
import { UsageError } from "../../cli/spec.ts";

const validator = (program: Parameters<typeof configSchema>[0]) =>
  new Ajv2020({ strict: true, allowUnionTypes: true }).compile(configSchema(program));

const good = {
  controller: [
    { worldSize: 8, listen: "0.0.0.0:7070", saltFile: "salt", roundDeadline: "30s" },
    { $schema: "controller.schema.json", worldSize: "0", http: "[::1]:0", frameCeiling: "64MiB" },
    { worldSize: 4, resume: true, state: "run1", outerOptimizer: "fedadam", outerTau: 1e-3 },
    { worldSize: 4, workers: "auto", kernel: "simd", frameCeiling: 1_000_000, resume: "no" },
  ],
  relay: [
    { ranks: "0-3", worldSize: 8, controller: "10.0.0.1:7070", host: "a", nonfinite: "zero" },
    { ranks: [0, 1, 5], worldSize: 8, controller: "root:1", workers: 3, logLevel: "debug" },
    { ranks: 1, worldSize: 2, controller: "[::1]:1", kernelCache: "kernels.json" },
  ],
};

const bad = [
  [{ wrldSize: 8 }, "must NOT have additional properties"],
  [{ worldSize: 8, salt: "00" }, "must NOT have additional properties"],
  [{ worldSize: 8.5 }, "must be integer,string"],
  [{ worldSize: "many" }, "must match pattern"],
  [{ worldSize: -1 }, "must be >="],
  [{ listen: 7070, worldSize: 1 }, "must be string"],
  [{ roundDeadline: "5", worldSize: 1 }, "must match pattern"],
  [{ kernel: "cuda", worldSize: 1 }, "must be equal to one of the allowed values"],
  [{ frameCeiling: "1 Zebra", worldSize: 1 }, "must match pattern"],
  [[], "must be object"],
] as const;

const programs = { controller: controllerProgram, relay: relayProgram } as const;

for (const [name, program] of Object.entries(programs)) {
  const files = good[name as keyof typeof good];
  const read = (content: unknown) => {
    const path = Deno.makeTempFileSync({ suffix: ".json" });
    try {
      Deno.writeTextFileSync(path, JSON.stringify(content));
      return resolveOptions(program.table, ["--config", path], () => undefined);
    } finally {
      Deno.removeSync(path);
    }
  };

  Deno.test(`config schema: ${name}: takes what the program takes`, () => {
    const valid = validator(program);
    for (const file of files) {
      read(file);
      assert(valid(file), JSON.stringify(valid.errors));
    }
  });

  Deno.test(`config schema: ${name}: refuses what the program refuses, and says what`, () => {
    const valid = validator(program);
    for (const [file, message] of bad) {
      assertThrows(() => read(file), UsageError);
      assertEquals(valid(file), false, `it takes ${JSON.stringify(file)}`);
      assertStringIncludes(JSON.stringify(valid.errors), message);
    }
  });

  Deno.test(`config schema: ${name}: every default fits its own schema`, () => {
    const valid = validator(program);
    const defaults = Object.fromEntries(
      Object.entries(program.table).flatMap(([key, { fallback }]) =>
        typeof fallback === "string" ? [[key, fallback]] : []
      ),
    );
    assert(valid(defaults), JSON.stringify(valid.errors));
  });
}
