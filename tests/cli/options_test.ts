import { TERMS } from "../../serve/terms.ts";
import { GATE_LIMITS } from "../../transport/gate.ts";
import { assert, assertEquals, assertStringIncludes, assertThrows } from "@std/assert";
import { renderHelp } from "../../cli/flags.ts";
import { resolveOptions } from "../../cli/options.ts";
import { configReport } from "../../cli/program.ts";
import { controllerProgram, parseControllerOptions } from "../../cli/controller_options.ts";
import { parseRelayOptions, relayProgram } from "../../cli/relay_options.ts";
import { envOf, flagOf, option, optionalOption, UsageError } from "../../cli/spec.ts";
import { text, wholeNumber, yesNo } from "../../cli/values.ts";

const SALT = "9d1c4be07a52f8360ee5b3476d91c82f";

const environment = (variables: Readonly<Record<string, string>>) => (name: string) =>
  variables[name];

const withConfig = (content: string, body: (path: string) => void) => {
  const path = Deno.makeTempFileSync({ suffix: ".json" });
  try {
    Deno.writeTextFileSync(path, content);
    body(path);
  } finally {
    Deno.removeSync(path);
  }
};

const table = {
  size: option({ value: "N", help: "a size", schema: wholeNumber(1, 99), fallback: "9" }),
  outFile: optionalOption({ value: "FILE", help: "a file", schema: text("a file") }),
  dryRun: option({ value: null, help: "does nothing", schema: yesNo(), fallback: "false" }),
  peers: optionalOption({ value: "LIST", help: "peers", schema: text("peers"), env: "OTHER" }),
};

Deno.test("options: names follow from the key", () => {
  assertEquals(flagOf("outFile"), "--out-file");
  assertEquals(envOf("outFile", table.outFile), "TIERFOLD_OUT_FILE");
  assertEquals(envOf("peers", table.peers), "OTHER");
});

Deno.test("options: flag before environment before config file before default", () => {
  withConfig(`{"size": 3, "dryRun": true}`, (path) => {
    const flag = ["--size", "1"];
    const env = { TIERFOLD_SIZE: "2" };
    const config = ["--config", path];
    const rows: [string[], Record<string, string>, number, string][] = [
      [[...flag, ...config], env, 1, "flag"],
      [config, env, 2, "environment"],
      [config, {}, 3, "config file"],
      [[], { TIERFOLD_CONFIG: path }, 3, "config file"],
      [[], {}, 9, "default"],
    ];
    for (const [args, variables, size, source] of rows) {
      const { values, sources } = resolveOptions(table, args, environment(variables));
      assertEquals([values.size, sources.size], [size, source]);
      assertEquals([values.outFile, sources.outFile], [undefined, "none"]);
    }
    const off = resolveOptions(table, [...config, "--no-dry-run"], environment({}));
    assertEquals([off.values.dryRun, off.sources.dryRun], [false, "flag"]);
    const on = resolveOptions(table, ["--dry-run"], environment({}));
    assertEquals(on.values.dryRun, true);
  });
  assertEquals(resolveOptions(table, [], environment({ OTHER: "a" })).values.peers, "a");
  assertEquals(resolveOptions(table, ["--size=7"], environment({})).values.size, 7);
});

Deno.test("options: what is wrong is refused with the option, its source and the expectation", () => {
  const rows: [string[], Record<string, string>, string[]][] = [
    [["--bogus"], {}, ["--bogus"]],
    [["--siz", "3"], {}, ["--siz"]],
    [["word"], {}, ["word"]],
    [["--size"], {}, ["--size <N>", "missing"]],
    [["--size", "--dry-run"], {}, ["--size <N>", "missing"]],
    [["--size", "1", "--size", "2"], {}, ["--size", "more than once"]],
    [["--size", "x"], {}, ["--size: expected a whole number from 1 to 99", `"x"`]],
    [[], { TIERFOLD_SIZE: "" }, ["TIERFOLD_SIZE (environment, for --size)", "1 to 99", `""`]],
    [[], { TIERFOLD_DRY_RUN: "maybe" }, ["TIERFOLD_DRY_RUN", "true or false"]],
    [["--config", "no/such/file.json"], {}, ["no/such/file.json", "no such file"]],
  ];
  for (const [args, variables, parts] of rows) {
    const run = () => resolveOptions(table, args, environment(variables));
    const error = assertThrows(run, UsageError) as UsageError;
    for (const part of parts) assertStringIncludes(error.message, part);
  }
});

Deno.test("options: a config file is checked as strictly", () => {
  const rows: [string, string[]][] = [
    [`{"size": "x"}`, [`"size" (config file`, "--size", "1 to 99"]],
    [`{"size": 100}`, ["1 to 99", "100"]],
    [`{"size": null}`, ["1 to 99", "null"]],
    [`{"out_file": "a"}`, [`unknown key "out_file"`, "outFile"]],
    [`{"salt": "${SALT}"}`, [`unknown key "salt"`, "saltFile"]],
    [`{"__proto__": 1}`, [`unknown key "__proto__"`]],
    [`[]`, ["expected a JSON object"]],
    [`{"salt: ${SALT}`, ["not JSON"]],
    [`{"size": 1, "size2": 1${" ".repeat(1 << 20)}}`, ["at most 1048576 bytes"]],
  ];
  for (const [content, parts] of rows) {
    withConfig(content, (path) => {
      const run = () => resolveOptions(table, ["--config", path], environment({}));
      const error = assertThrows(run, UsageError) as UsageError;
      for (const part of parts) assertStringIncludes(error.message, part);
      assert(!error.message.includes(SALT), "the secret is repeated");
    });
  }
});

Deno.test("options: every problem is told at once", () => {
  const run = () => resolveOptions(table, ["--size", "x"], environment({ TIERFOLD_DRY_RUN: "x" }));
  assertEquals((assertThrows(run, UsageError) as UsageError).problems.length, 2);
});

Deno.test("options: the relay's, from the command line", () => {
  const args = "--host a --ranks 0-1,4 --world-size 8 --controller [::1]:7070 --listen 0.0.0.0:0 " +
    "--allow-plain " +
    "--round-deadline 30s --join-deadline 500ms --connect-deadline 2m " +
    "--reconnect-deadline 0s --return-deadline 20s --frame-ceiling 64MiB --adaptive-deadline 2s --http 127.0.0.1:9000 " +
    "--nonfinite zero --kernel auto --gpu-threshold 4MiB --workers 3 --log-format json --log-level debug";
  assertEquals(parseRelayOptions(args.split(" "), environment({ TIERFOLD_SALT: SALT })), {
    host: "a",
    ranks: [0, 1, 4],
    worldSize: 8,
    controller: { hostname: "::1", port: 7070 },
    listen: { hostname: "0.0.0.0", port: 0 },
    roundDeadlineMs: 30_000,
    deadlineFloorMs: 2_000,
    http: { hostname: "127.0.0.1", port: 9000 },
    joinDeadlineMs: 500,
    connectDeadlineMs: 120_000,
    reconnectDeadlineMs: 0,
    returnDeadlineMs: 20_000,
    nonfinite: "zero",
    manifest: undefined,
    frameCeilingBytes: 64 * 2 ** 20,
    kernel: "auto",
    gpuThresholdBytes: 4 * 2 ** 20,
    kernelCache: undefined,
    workers: 3,
    salt: Uint8Array.fromHex(SALT),
    terms: TERMS,
    gate: GATE_LIMITS,
    tls: undefined,
    log: { format: "json", level: "debug" },
  });
});

Deno.test("options: the relay's and the controller's defaults", () => {
  const defaults = {
    listen: { hostname: "127.0.0.1", port: 0 },
    roundDeadlineMs: 300_000,
    deadlineFloorMs: undefined,
    joinDeadlineMs: 300_000,
    frameCeilingBytes: 2 ** 30,
    kernel: "simd",
    gpuThresholdBytes: undefined,
    kernelCache: undefined,
    workers: "auto",
    salt: Uint8Array.fromHex(SALT),
    terms: TERMS,
    gate: GATE_LIMITS,
    tls: undefined,
    log: { format: "human", level: "info" },
  };
  const variables = {
    TIERFOLD_SALT: SALT,
    TIERFOLD_RANKS: "1",
    TIERFOLD_WORLD_SIZE: "2",
    TIERFOLD_CONTROLLER: "root:7070",
  };
  assertEquals(parseRelayOptions([], environment(variables)), {
    ...defaults,
    host: Deno.hostname(),
    ranks: [1],
    worldSize: 2,
    controller: { hostname: "root", port: 7070 },
    connectDeadlineMs: 60_000,
    reconnectDeadlineMs: 60_000,
    returnDeadlineMs: 0,
    nonfinite: "refuse",
    manifest: undefined,
    http: undefined,
  });
  const controller = parseControllerOptions(["--world-size", "3"], environment(variables));
  assertEquals<unknown>(controller, {
    ...defaults,
    worldSize: 3,
    minRanks: 1,
    returnDeadlineMs: 60_000,
    http: undefined,
    operatorToken: undefined,
    passesStore: undefined,
    passesBytes: 2 ** 30,
    passPolicy: { clipNorm: undefined, aggregation: { kind: "mean" } },
    kept: undefined,
    delta: undefined,
  });
});

Deno.test("options: the least of an adaptive deadline is not above the most", () => {
  const args = ["--world-size", "4", "--adaptive-deadline", "6m"];
  const run = () => parseControllerOptions(args, environment({ TIERFOLD_SALT: SALT }));
  assertThrows(run, UsageError, "--adaptive-deadline 6m: it is the least, and above the most");
});

Deno.test("options: a rank beyond the world is refused", () => {
  const args = ["--ranks", "0-4", "--world-size", "4", "--controller", "a:1"];
  const run = () => parseRelayOptions(args, environment({ TIERFOLD_SALT: SALT }));
  assertThrows(run, UsageError, "rank 4 is not below --world-size 4");
});

Deno.test("options: --salt does not exist and its value is not repeated", () => {
  for (const args of [["--salt", SALT], [`--salt=${SALT}`]]) {
    const run = () => parseControllerOptions(args, environment({}));
    const error = assertThrows(run, UsageError, "no such option") as UsageError;
    assert(!error.message.includes(SALT));
  }
});

for (const program of [relayProgram, controllerProgram] as const) {
  Deno.test(`options: the help of ${program.name} names every option, variable and an example`, () => {
    const page = renderHelp(program.table, program);
    for (const [key, spec] of Object.entries(program.table)) {
      const value = spec.value === null ? "" : ` <${spec.value}>`;
      assertStringIncludes(page, `${flagOf(key)}${value}`);
      assertStringIncludes(page.replace(/\s+/g, " "), `environment: ${envOf(key, spec)}`);
    }
    for (const word of ["Examples:", "--config <FILE>", "--print-config", "--version"]) {
      assertStringIncludes(page, word);
    }
    assert(page.split("\n").every((line) => line.length <= 100), "a line passes 100 columns");
    assert(!/--salt[^-]/.test(page), "there is no --salt");
  });
}

Deno.test("options: the report shows sources and can be typed again", () => {
  const env = environment({ TIERFOLD_SALT: SALT, TIERFOLD_WORLD_SIZE: "8" });
  const args = ["--host", "a", "--ranks", "0-3,5", "--controller", "[::1]:7070"];
  const report = configReport(
    relayProgram.table,
    resolveOptions(relayProgram.table, args, env),
    env,
  );
  const of = (key: string) => [report.options[key]?.value, report.options[key]?.source];
  assertEquals(of("ranks"), ["0-3,5", "flag"]);
  assertEquals(of("worldSize"), [8, "environment"]);
  assertEquals(of("roundDeadline"), ["5m", "default"]);
  assertEquals(of("frameCeiling"), ["1GiB", "default"]);
  assertEquals(of("controller"), ["[::1]:7070", "flag"]);
  assertEquals(of("gpuThreshold"), [null, "none"]);
  assertEquals(report.salt, "from TIERFOLD_SALT");
  assert(!JSON.stringify(report).includes(SALT), "the salt is printed");
});
