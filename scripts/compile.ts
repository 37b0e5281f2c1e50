/**
 * Makes binaries that need nothing, not even Deno: `deno task compile` for this machine,
 * `deno task compile --all` for every machine that Deno knows.
 *
 * @module
 */
import { bundle } from "./bundle.ts";
import { CommandError, output } from "./command.ts";
import { CommitTree } from "./commit_tree.ts";
import { type BuiltProgram, PROGRAMS, TARGETS } from "./programs.ts";

/**
 * Compiles a bundle.
 *
 * @param script The bundle.
 * @param binary Where to put the binary; Windows adds .exe.
 * @param target One of {@link TARGETS}; this machine when left out.
 * @throws {CommandError} when the compile base of the target cannot be had, or `deno compile` fails.
 */
export async function compile(
  script: string,
  { permissions }: Pick<BuiltProgram, "permissions">,
  binary: string,
  target?: string,
): Promise<void> {
  const folder = script.slice(0, script.lastIndexOf("/"));
  const where = target === undefined ? [] : ["--target", target];
  const command = [Deno.execPath(), "compile", "--no-check", "--no-config", ...where];
  await output([...command, ...permissions, "--output", binary, script], folder);
}

if (import.meta.main) {
  const root = new URL("../", import.meta.url).pathname;
  const targets = Deno.args.includes("--all") ? TARGETS : [undefined];
  await using tree = await CommitTree.open(root);
  console.log(`compiling ${tree.what}`);
  await Deno.mkdir(`${root}bin`, { recursive: true });
  let failed = 0;
  for (const program of PROGRAMS) {
    const script = `${root}bin/${program.name}.js`;
    await bundle(tree.folder, program, script);
    for (const target of targets) {
      const binary = `bin/${program.name}${target === undefined ? "" : `-${target}`}`;
      try {
        await compile(script, program, root + binary, target);
        const made = target?.includes("windows") ? `${binary}.exe` : binary;
        const { size } = await Deno.stat(root + made);
        console.log(`${made}  ${(size / 1e6).toFixed(1)} MB`);
      } catch (error) {
        if (!(error instanceof CommandError)) throw error;
        failed++;
        console.error(`${binary}: ${error.message}`);
      }
    }
  }
  if (failed > 0) {
    console.error(
      `${failed} not compiled. Deno downloads a base binary for each target; where it cannot, ` +
        "DENORT_BIN names one. deno task bundle needs none.",
    );
    Deno.exit(1);
  }
}
