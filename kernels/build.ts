/**
 * Assembles kernels/simd.wat into kernels/simd_wasm.ts, which carries the module's bytes as text so
 * that bundled and compiled programs need no file at run time: `deno task kernels:build`.
 *
 * @module
 */
import wabt from "wabt";

const SOURCE = new URL("./simd.wat", import.meta.url);
const TARGET = new URL("./simd_wasm.ts", import.meta.url);
const LINE = 96;

/** Offsets of the vectors of one unrolled block. */
const OFFSETS = [0, 16, 32, 48, 64, 80, 96, 112];

/** Repeats what lies between the lines `;; unroll` and `;; end`, with @ replaced by each offset. */
function unroll(wat: string): string {
  return wat.replace(
    /^ *;; unroll\n([^]*?)^ *;; end\n/gm,
    (_, body: string) => OFFSETS.map((offset) => body.replaceAll("@", `${offset}`)).join(""),
  );
}

/** The content that simd_wasm.ts has for the text of simd.wat. */
export async function generate(wat: string): Promise<string> {
  const { parseWat } = await wabt();
  const module = parseWat("simd.wat", unroll(wat), { simd: true, threads: true });
  let bytes: Uint8Array;
  try {
    bytes = module.toBinary({}).buffer;
  } finally {
    module.destroy();
  }
  // wabt's own check refuses shared memories; the engine that will run the module knows them.
  new WebAssembly.Module(new Uint8Array(bytes));
  const text = bytes.toBase64();
  const lines: string[] = [];
  for (let at = 0; at < text.length; at += LINE) lines.push(text.slice(at, at + LINE));
  return `// Written by kernels/build.ts from kernels/simd.wat: do not edit.

/** The WASM module of kernels/simd.wat (${bytes.length} bytes), in base64. */
export const SIMD_WASM = \`
${lines.join("\n")}
\`;
`;
}

if (import.meta.main) {
  await Deno.writeTextFile(TARGET, await generate(await Deno.readTextFile(SOURCE)));
}
