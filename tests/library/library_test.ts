// The package as others take it: its examples, what would be published, its version and its change log.
import { assert, assertEquals, assertMatch } from "@std/assert";
import manifest from "../../deno.json" with { type: "json" };
import { output } from "../../scripts/command.ts";

const root = new URL("../../", import.meta.url).pathname;

Deno.test("library: the examples in doc comments run", async () => {
  const said = await output([Deno.execPath(), "task", "--quiet", "doc:test"], root);
  const [, passed] = /ok \| (\d+) passed/.exec(said) ?? [];
  assert(Number(passed) >= 10, said);
});

Deno.test("library: what would be published is clean, and is the product alone", async () => {
  // The types are checked by `deno task check`; those of the API are checked again here.
  const args = ["publish", "--dry-run", "--allow-dirty", "--no-check"];
  const { code, stderr, stdout } = await new Deno.Command(Deno.execPath(), {
    args,
    cwd: root,
    env: { NO_COLOR: "1" },
    stdin: "null",
  }).output();
  const said = new TextDecoder().decode(stdout) + new TextDecoder().decode(stderr);
  assertEquals(code, 0, said);
  assertMatch(said, /Success Dry run complete/);
  assert(!/\bwarning\b/i.test(said.replaceAll(/file:\S+/g, "")), said);
  const files = [...said.matchAll(/file:\/\/(\S+) \(/g)].map(([, path]) =>
    path!.slice(root.length)
  );
  for (
    const needed of ["mod.ts", "relay.ts", "README.md", "LICENSE", "CHANGELOG.md", "deno.json"]
  ) {
    assert(files.includes(needed), `${needed} is left out`);
  }
  const odd = files.filter((path) =>
    /^(tests|bench|examples|clients|deploy|scripts|bin)\//.test(path)
  );
  assertEquals(odd, []);
});

Deno.test("library: the version is semantic, and the change log speaks of it", async () => {
  assertMatch(manifest.version, /^\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?$/);
  const log = await Deno.readTextFile(`${root}CHANGELOG.md`);
  const headings = [...log.matchAll(/^## (.*)$/gm)].map(([, heading]) => heading!);
  assertMatch(headings[0]!, /^\[(Unreleased|\d+\.\d+\.\d+)\]/);
  for (const heading of headings) {
    assertMatch(heading, /^\[Unreleased\]$|^\[\d+\.\d+\.\d+\] - \d{4}-\d\d-\d\d$/);
  }
  for (const [, kind] of log.matchAll(/^### (.*)$/gm)) {
    assertMatch(kind!, /^(Added|Changed|Deprecated|Removed|Fixed|Security)$/);
  }
  // A released version has a heading of its own; until then its items are unreleased.
  const released = headings.some((heading) => heading.startsWith(`[${manifest.version}]`));
  assert(released || headings[0] === "[Unreleased]");
});
