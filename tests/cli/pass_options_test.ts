import { assertEquals, assertStringIncludes, assertThrows } from "@std/assert";
import { parseControllerOptions } from "../../cli/controller_options.ts";
import { UsageError } from "../../cli/spec.ts";

const ENV: Readonly<Record<string, string>> = {
  TIERFOLD_SALT: "9d1c4be07a52f8360ee5b3476d91c82f",
  TIERFOLD_WORLD_SIZE: "0",
};

const parse = (args: readonly string[], env: Readonly<Record<string, string>> = {}) =>
  parseControllerOptions(args, (name) => ({ ...ENV, ...env })[name]).passPolicy;

const HTTP = ["--http", "127.0.0.1:7080"];

Deno.test("pass options: what they become", () => {
  const mean = { clipNorm: undefined, aggregation: { kind: "mean" } };
  assertEquals<unknown>(parse(HTTP), mean);
  assertEquals<unknown>(parse([...HTTP, "--aggregate", "median", "--clip-norm", "2.5"]), {
    clipNorm: 2.5,
    aggregation: { kind: "median" },
  });
  for (const [text, trim] of [["3", 3], ["0.25", 0.25], ["1", 1]] as const) {
    assertEquals<unknown>(
      parse(HTTP, { TIERFOLD_AGGREGATE: "trimmed", TIERFOLD_TRIM: text }),
      { clipNorm: undefined, aggregation: { kind: "trimmed", trim } },
    );
  }
});

Deno.test("pass options: what does not fit is refused by name", () => {
  const rows: [string[], string][] = [
    [[...HTTP, "--aggregate", "trimmed"], "--aggregate trimmed needs --trim"],
    [[...HTTP, "--trim", "1"], "--trim: --aggregate mean has no use for it"],
    [[...HTTP, "--aggregate", "median", "--trim", "1"], "--aggregate median has no use for it"],
    [[...HTTP, "--aggregate", "trimmed", "--trim", "0.5"], "a share below 0.5, got 0.5"],
    [[...HTTP, "--aggregate", "trimmed", "--trim", "1.5"], "a share below 0.5, got 1.5"],
    [[...HTTP, "--aggregate", "trimmed", "--trim", "0"], "above 0"],
    [[...HTTP, "--aggregate", "krum"], "one of mean, trimmed, median"],
    [[...HTTP, "--clip-norm", "0"], "above 0"],
    [["--world-size", "1", "--clip-norm", "1"], "--clip-norm: there are no passes without --http"],
    [["--world-size", "1", "--aggregate", "median"], "--aggregate median: there are no passes"],
  ];
  for (const [args, message] of rows) {
    const error = assertThrows(() => parse(args), UsageError) as UsageError;
    assertStringIncludes(error.message, message);
  }
});
