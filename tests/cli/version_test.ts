// --version names the commit of an archive, and none where the files may be any.
import { assert, assertEquals } from "@std/assert";
import { LICENSE, VERSION } from "../../cli/version.ts";
import { installed, testWith } from "../tools.ts";

const root = new URL("../../", import.meta.url).pathname;

async function output(command: string, args: string[], cwd: string): Promise<string> {
  const { stdout, stderr, code } = await new Deno.Command(command, { args, cwd }).output();
  assertEquals(code, 0, new TextDecoder().decode(stderr));
  return new TextDecoder().decode(stdout);
}

/** Whether this is a clone of the repository, and not an archive of it. */
const cloned = installed("git") &&
  new Deno.Command("git", { args: ["rev-parse", "--show-toplevel"], cwd: root, stderr: "null" })
    .outputSync().success;

const version = (cwd: string) =>
  output(Deno.execPath(), ["run", "--no-prompt", "--quiet", "relay.ts", "--version"], cwd);

Deno.test({
  name: `version: a working tree names no commit${cloned ? "" : " (skipped: not a git clone)"}`,
  ignore: !cloned,
  fn: async () => {
    const line = await version(root);
    const start = `tierfold-relay ${VERSION}, commit unknown (a working tree; `;
    assert(line.startsWith(start) && line.endsWith(`, licence ${LICENSE}\n`), line);
  },
});

testWith(cloned ? ["tar"] : ["git clone"], "version: an archive names its commit", async () => {
  const commit = (await output("git", ["rev-parse", "HEAD"], root)).trim();
  const folder = await Deno.makeTempDir();
  try {
    await output("git", ["archive", "--output", `${folder}/all.tar`, "HEAD"], root);
    await output("tar", ["-xf", "all.tar"], folder);
    assertEquals(
      await version(folder),
      `tierfold-relay ${VERSION}, commit ${commit}, licence ${LICENSE}\n`,
    );
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
});
