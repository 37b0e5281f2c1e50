// The controller's options for deltas and federated passes.
import { assert, assertEquals, assertThrows } from "@std/assert";
import { controllerProgram, parseControllerOptions } from "../../cli/controller_options.ts";
import { configReport } from "../../cli/program.ts";
import { resolveOptions } from "../../cli/options.ts";
import { UsageError } from "../../cli/spec.ts";

const SALT = "9d1c4be07a52f8360ee5b3476d91c82f";

function parse(args: string[], variables: Record<string, string> = {}) {
  const env = { TIERFOLD_SALT: SALT, ...variables };
  return parseControllerOptions(
    ["--world-size", "2", ...args],
    (name) => (env as Record<string, string>)[name],
  );
}

Deno.test("delta options: peers and keys come from AXIOM_DWE_PEERS and AXIOM_FLEET_KEY", () => {
  const { delta } = parse([], {
    AXIOM_DWE_PEERS: "10.0.0.1:9000, [::1]:9001 ,10.0.0.1:9000",
    AXIOM_FLEET_KEY: " secret ",
  });
  assertEquals(delta, {
    peers: ["10.0.0.1:9000", "[::1]:9001"],
    keys: {
      current: { file: undefined, text: " secret " },
      previous: { file: undefined, text: undefined },
    },
    every: 1,
    snapshots: true,
  });
  assertEquals(parse([], { AXIOM_DWE_PEERS: "" }).delta, undefined);
  assertEquals(parse(["--delta-peers", "a:1"], { AXIOM_DWE_PEERS: "b:2" }).delta!.peers, ["a:1"]);
});

Deno.test("delta options: files instead of variables, cadence, no snapshots", () => {
  const { delta } = parse([
    ...["--delta-peers", "a:1", "--delta-every", "5", "--delta-snapshots", "off"],
    ...["--fleet-key-file", "now.key", "--fleet-key-previous-file", "before.key"],
  ]);
  assertEquals(delta!.keys.current.file, "now.key");
  assertEquals(delta!.keys.previous.file, "before.key");
  assertEquals([delta!.every, delta!.snapshots], [5, false]);
});

Deno.test("delta options: what does not fit is refused by name", () => {
  const rows: [string[], Record<string, string>, string][] = [
    [["--delta-peers", "a"], {}, "--delta-peers"],
    [[], { AXIOM_DWE_PEERS: "a:1,b:0" }, "AXIOM_DWE_PEERS (environment, for --delta-peers)"],
    [["--delta-every", "0"], {}, "--delta-every"],
    [["--fleet-key-file", "f"], { AXIOM_FLEET_KEY: "k" }, "AXIOM_FLEET_KEY and --fleet-key-file"],
    [["--http", "here"], {}, "--http"],
  ];
  for (const [args, variables, part] of rows) {
    assertThrows(() => parse(args, variables), UsageError, part);
  }
  const alone = (args: string[]) =>
    parseControllerOptions(args, (name) => name === "TIERFOLD_SALT" ? SALT : undefined);
  assertThrows(() => alone(["--world-size", "0"]), UsageError, "--http");
  assertEquals(alone(["--world-size", "0", "--http", "127.0.0.1:0"]).worldSize, 0);
});

Deno.test("delta options: --print-config shows no key", () => {
  const env = (name: string) => name === "AXIOM_FLEET_KEY" ? "very-secret" : undefined;
  const { table } = controllerProgram;
  const report = configReport(table, resolveOptions(table, ["--world-size", "1"], env), env);
  assert(!JSON.stringify(report).includes("very-secret"));
});
