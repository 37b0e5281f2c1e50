/**
 * Writes controller/page/files.ts, which carries the page's files as text, so that the controller needs
 * neither files nor a compiler at run time: `deno task page:build`.
 *
 * @module
 */
import { fileURLToPath } from "node:url";

const TARGET = new URL("./files.ts", import.meta.url);

/** Files that are served as they are; style sheets in the order in which they apply. */
const SOURCES = [
  ...["index.html", "icon.svg"],
  ...["theme.css", "page.css", "picture.css", "parts.css", "narrow.css"],
];

/** The script, bundled from its modules. */
async function script(): Promise<string> {
  const main = fileURLToPath(new URL("./browser/main.ts", import.meta.url));
  const { success, stdout, stderr } = await new Deno.Command(Deno.execPath(), {
    args: ["bundle", "--quiet", "--platform", "browser", "--format", "iife", main],
    env: { NO_COLOR: "1" },
  }).output();
  const text = (bytes: Uint8Array) => new TextDecoder().decode(bytes);
  if (!success) throw new Error(`bundling ${main} failed: ${text(stderr)}`);
  return text(stdout);
}

/** The content that files.ts has for the sources as they are. */
export async function generate(): Promise<string> {
  const files = await Promise.all(
    SOURCES.map(async (name) =>
      [name, await Deno.readTextFile(new URL(name, import.meta.url))] as const
    ),
  );
  const lines = [...files, ["page.js", await script()] as const]
    .map(([name, text]) => `  ${JSON.stringify(name)}: ${JSON.stringify(text)},\n`);
  return `// Written by controller/page/build.ts from the files beside it: do not edit.

/** The files of the page, by name. */
export const PAGE_FILES = {
${lines.join("")}};
`;
}

if (import.meta.main) await Deno.writeTextFile(TARGET, await generate());
