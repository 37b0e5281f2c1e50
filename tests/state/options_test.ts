import { assertEquals, assertThrows } from "@std/assert";
import { parseControllerOptions } from "../../cli/controller_options.ts";
import { parseRelayOptions } from "../../cli/relay_options.ts";
import { UsageError } from "../../cli/spec.ts";
import { nameIn, parseManifest } from "../../wire/manifest.ts";

const env = (name: string) =>
  name === "TIERFOLD_SALT" ? "9d1c4be07a52f8360ee5b3476d91c82f" : undefined;

function kept(args: string) {
  return parseControllerOptions(`--world-size 2 ${args}`.trim().split(" "), env).kept;
}

function refused(args: string, text: string): void {
  assertThrows(() => kept(args), UsageError, text);
}

Deno.test("state options: nothing is kept unless asked for", () => {
  assertEquals(kept(""), undefined);
  assertEquals(kept("--checkpoint-every 3"), undefined);
});

Deno.test("state options: a directory, and each outer optimizer with its rates", () => {
  const rest = { checkpointEvery: 10, checkpointKeep: 3, resume: false, manifest: undefined };
  const average = { name: "average" };
  assertEquals<unknown>(kept("--state run1"), { ...rest, directory: "run1", outer: average });
  assertEquals<unknown>(kept("--state r --resume --checkpoint-every 7 --checkpoint-keep 1"), {
    ...rest,
    directory: "r",
    checkpointEvery: 7,
    checkpointKeep: 1,
    resume: true,
    outer: average,
  });
  const outer = (args: string) => {
    const { outer, directory } = kept(`--outer-optimizer ${args}`)!;
    assertEquals(directory, undefined);
    return outer;
  };
  assertEquals(outer("nesterov"), { name: "nesterov", rate: 0.7, momentum: 0.9 });
  assertEquals(outer("nesterov --outer-rate 1 --outer-momentum 0"), {
    name: "nesterov",
    rate: 1,
    momentum: 0,
  });
  assertEquals(
    outer("fedadam --outer-tau 1e-9 --outer-beta1 0.5 --outer-beta2 0.9"),
    {
      name: "fedadam",
      rate: 0.1,
      beta1: 0.5,
      beta2: 0.9,
      tau: 1e-9,
    },
  );
});

Deno.test("state options: what does not fit together is refused by name", () => {
  refused("--resume", "--resume: there is nothing to go on from without --state DIR");
  refused("--outer-momentum 0.5", "--outer-momentum: --outer-optimizer average has no use for it");
  refused("--outer-optimizer fedadam --outer-momentum 0.5", "only nesterov");
  refused("--outer-optimizer nesterov --outer-beta1 0.5 --outer-tau 1", "--outer-tau");
  refused("--outer-optimizer nesterov --outer-momentum 1", "at least 0 and below 1");
  refused("--outer-optimizer nesterov --outer-rate 0", "above 0");
  refused("--outer-optimizer nesterov --outer-rate x", "a number like 0.7 or 1e-3");
  refused("--outer-optimizer sgd", "one of average, nesterov, fedadam");
  refused("--checkpoint-every 0", "--checkpoint-every");
});

Deno.test("state options: the manifest is read by both tiers, and checked", () => {
  const path = Deno.makeTempFileSync();
  try {
    Deno.writeTextFileSync(path, '["a", "b.c"]');
    assertEquals(kept(`--state s --manifest ${path}`)?.manifest, [["a", "b.c"]]);
    const args = ["--host", "h", "--ranks", "0", "--world-size", "1", "--controller", "c:1"];
    assertEquals(parseRelayOptions([...args, "--manifest", path], env).manifest, [["a", "b.c"]]);
    Deno.writeTextFileSync(path, '{"a": 1}');
    refused(`--state s --manifest ${path}`, `manifest ${path}: expected a list of names`);
  } finally {
    Deno.removeSync(path);
  }
  refused("--state s --manifest /nowhere", "manifest /nowhere: cannot be read: there is no such");
});

Deno.test("manifest: names, lists of names, and what is neither", () => {
  const lists = parseManifest('[["w", "b"], ["mean"]]');
  assertEquals(lists, [["w", "b"], ["mean"]]);
  assertEquals([nameIn(lists, 1, 2), nameIn(lists, 0, 1), nameIn(lists, 0, 3)], [
    "b",
    "mean",
    undefined,
  ]);
  assertEquals(nameIn(undefined, 0, 1), undefined);
  const cases = [
    ["[", "not JSON"],
    ["[]", "not empty"],
    ['"a"', "expected a list"],
    ['["a", 3]', "name 1 of list 0 is 3"],
    ['["a", "a"]', 'is "a", which is there already'],
    ['[["a"], ["a"]]', "name 0 of list 1"],
    ['[""]', "has 0 bytes"],
    [JSON.stringify(["x".repeat(1025)]), "has 1025 bytes"],
    ['["\\ud800"]', "well-formed"],
    ['["tierfold.x"]', "such names are taken"],
    ['["__metadata__"]', "such names are taken"],
    ['[["a"], "b"]', "name 0 of list 0"],
  ] as const;
  for (const [text, message] of cases) assertThrows(() => parseManifest(text), RangeError, message);
});
