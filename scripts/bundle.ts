/**
 * Makes one JavaScript file of a program, which needs no other file: `deno task bundle`.
 *
 * A thread's modules are bundled first and put into the program as text, since it cannot find their files
 * any more. ONNX Runtime stays out, it is twenty times as large as all of Tierfold: --kernel ort-wasm and
 * ort-webgpu then say so and fall back to simd.
 *
 * @module
 */
import type { OrtReply } from "../kernels/ort_messages.ts";
import { output } from "./command.ts";
import { CommitTree } from "./commit_tree.ts";
import { type BuiltProgram, PROGRAMS } from "./programs.ts";

/** Why a bundle has no ONNX Runtime, as its log says it. */
export const NO_ORT = "this build carries no ONNX Runtime; run Tierfold from its sources for that";

const NO_ORT_REPLY: OrtReply = { type: "failed", reason: NO_ORT };

/** What stands for a thread in the sources, and what takes its place. */
interface Thread {
  /** The expression that names its module. */
  readonly expression: string;
  /** Gives the source text of its module. */
  readonly source: (root: string) => Promise<string>;
}

const THREADS: readonly Thread[] = [
  {
    expression: `new URL("./worker.ts", import.meta.url)`,
    source: (root) => bundled(root, "controller/delta/worker.ts"),
  },
  {
    expression: `new URL("./ort_worker.ts", import.meta.url)`,
    // What a thread says that cannot open ONNX Runtime.
    source: () => Promise.resolve(`postMessage(${JSON.stringify(NO_ORT_REPLY)});`),
  },
];

/**
 * Bundles a program.
 *
 * @param root The folder of the sources.
 * @param file Where to put it.
 * @returns Its size in bytes.
 * @throws {Error} when `deno bundle` fails, or a thread is started in an unknown way.
 */
export async function bundle(root: string, program: BuiltProgram, file: string): Promise<number> {
  let text = await bundled(root, program.entry);
  for (const { expression, source } of THREADS) {
    const parts = text.split(expression);
    if (parts.length === 1) continue;
    if (parts.length > 2) throw new Error(`bundling ${program.entry}: ${expression} stands twice`);
    const blob = `new Blob([${JSON.stringify(await source(root))}], { type: "text/javascript" })`;
    text = parts.join(`new URL(URL.createObjectURL(${blob}))`);
  }
  const left = /new Worker\(\s*new URL\("[^"]+"/.exec(text)?.[0];
  if (left !== undefined) throw new Error(`bundling ${program.entry}: ${left}...: unknown thread`);
  const bytes = new TextEncoder().encode(text);
  await Deno.writeFile(file, bytes);
  return bytes.length;
}

/** The text of an entry with all that it imports. */
export async function bundled(root: string, entry: string): Promise<string> {
  const file = await Deno.makeTempFile({ suffix: ".js" });
  try {
    const command = [Deno.execPath(), "bundle", "--quiet", "--platform", "deno", "--output", file];
    await output([...command, entry], root);
    return await Deno.readTextFile(file);
  } finally {
    await Deno.remove(file);
  }
}

if (import.meta.main) {
  const root = new URL("../", import.meta.url).pathname;
  await using tree = await CommitTree.open(root);
  console.log(`bundling ${tree.what}`);
  await Deno.mkdir(`${root}bin`, { recursive: true });
  for (const program of PROGRAMS) {
    const file = `bin/${program.name}.js`;
    const bytes = await bundle(tree.folder, program, root + file);
    console.log(`${file}  ${(bytes / 1e6).toFixed(2)} MB  deno run ${shown(program)} ${file}`);
  }
}

function shown({ permissions }: BuiltProgram): string {
  return permissions.map((flag) => flag.includes("*") ? `"${flag}"` : flag).join(" ");
}
