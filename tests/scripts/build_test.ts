// What `deno task bundle` and `deno task compile` make, run from an empty folder as a whole cluster.
import { assert, assertEquals, assertRejects, assertStringIncludes } from "@std/assert";
import { VERSION } from "../../cli/version.ts";
import { bundle } from "../../scripts/bundle.ts";
import { CommandError, output } from "../../scripts/command.ts";
import { CommitTree } from "../../scripts/commit_tree.ts";
import { compile } from "../../scripts/compile.ts";
import { PROGRAMS, TARGETS } from "../../scripts/programs.ts";
import { testWith } from "../tools.ts";
import { averagesOver } from "./cluster.ts";

const root = new URL("../../", import.meta.url).pathname;
const [controller, relay] = PROGRAMS as [typeof PROGRAMS[0], typeof PROGRAMS[0]];

/** Most that a bundle may weigh, in bytes: it carries no ONNX Runtime by mistake. */
const MOST_BYTES = 4_000_000;

async function inEmptyFolder(body: (folder: string) => Promise<void>): Promise<void> {
  const folder = await Deno.makeTempDir();
  try {
    await body(folder);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}

Deno.test("bundle: two files alone are a cluster, with the permissions of their binaries", () =>
  inEmptyFolder(async (folder) => {
    const start = async (program: typeof controller) => {
      const file = `${folder}/${program.name}.js`;
      const bytes = await bundle(root, program, file);
      assert(bytes < MOST_BYTES, `${program.name}.js has ${bytes} bytes`);
      const alone = ["--no-prompt", "--no-config", "--no-npm", "--no-remote", "--quiet"];
      return [Deno.execPath(), "run", ...alone, ...program.permissions, file];
    };
    await averagesOver({ controller: await start(controller), relay: await start(relay) }, folder);
  }));

testWith(["git", "tar"], "bundle: of a commit names it", () =>
  inEmptyFolder(async (folder) => {
    await using tree = await CommitTree.open(root);
    await bundle(tree.folder, relay, `${folder}/relay.js`);
    const line = await output([Deno.execPath(), "run", "relay.js", "--version"], folder);
    const commit = /^commit ([0-9a-f]+)/.exec(tree.what)?.[1];
    // Of an archive, the program alone knows the commit.
    if (commit === undefined) assertStringIncludes(line, `tierfold-relay ${VERSION}, commit `);
    else assertEquals(line, `tierfold-relay ${VERSION}, commit ${commit}, licence MIT\n`);
  }));

/** Why nothing can be compiled here; undefined where it can. */
async function noBase(): Promise<string | undefined> {
  const folder = await Deno.makeTempDir();
  try {
    await Deno.writeTextFile(`${folder}/hello.js`, `console.log("hello " + Deno.args[0]);`);
    await compile(`${folder}/hello.js`, { permissions: [] }, `${folder}/hello`);
    const said = await output([`${folder}/hello`, "you"], folder);
    return said === "hello you\n" ? undefined : "DENORT_BIN names no compile base of Deno";
  } catch (error) {
    if (!(error instanceof CommandError)) throw error;
    return "the compile base of Deno cannot be downloaded, and DENORT_BIN names none";
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}

const missing = await noBase();
const why = missing === undefined ? "" : ` (skipped: ${missing})`;

Deno.test({
  name: `compile: two binaries alone are a cluster${why}`,
  ignore: missing !== undefined,
  fn: () =>
    inEmptyFolder(async (folder) => {
      const start = async (program: typeof controller) => {
        const script = `${folder}/${program.name}.js`;
        await bundle(root, program, script);
        await compile(script, program, `${folder}/${program.name}`);
        await Deno.remove(script);
        return [`${folder}/${program.name}`];
      };
      await averagesOver(
        { controller: await start(controller), relay: await start(relay) },
        folder,
      );
    }),
});

Deno.test("compile: what fails is told with the tool's words", () =>
  inEmptyFolder(async (folder) => {
    await assertRejects(
      () => compile(`${folder}/nothing.js`, controller, `${folder}/nothing`),
      CommandError,
      "nothing.js",
    );
  }));

Deno.test("compile: targets and permissions are the ones that Deno knows", async () => {
  const help = await output([Deno.execPath(), "compile", "--help"], root);
  assertStringIncludes(help, "--target");
  await inEmptyFolder(async (folder) => {
    await Deno.writeTextFile(`${folder}/empty.js`, "");
    for (const { permissions } of PROGRAMS) {
      await output([Deno.execPath(), "run", ...permissions, "empty.js"], folder);
    }
    const refused = compile(`${folder}/empty.js`, controller, `${folder}/x`, "m68k-amiga");
    const { message } = await assertRejects(() => refused, CommandError);
    for (const target of TARGETS) assertStringIncludes(message, target);
  });
});
