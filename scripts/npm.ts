/**
 * Makes the package for Node.js in bin/npm: `deno task npm`, then `npm publish bin/npm`.
 *
 * One JavaScript file without dependencies, a declaration for every module behind its types, README, licence
 * and change log.
 *
 * @module
 */
import ts from "typescript";
import manifest from "../deno.json" with { type: "json" };
import { bundled } from "./bundle.ts";
import { CommitTree } from "./commit_tree.ts";

const ENTRY = "node.ts";

/** The oldest Node.js that the tests run on. */
const NODE = ">=20";

/**
 * Writes the package.
 *
 * @param root The folder of the sources.
 * @param folder Where to put it; made when it is missing.
 * @throws {Error} when the bundle fails, or a type of the API cannot be declared.
 */
export async function makePackage(root: string, folder: string): Promise<void> {
  await Deno.mkdir(folder, { recursive: true });
  await Deno.writeTextFile(`${folder}/index.js`, await bundled(root, ENTRY));
  await declare(root, folder);
  for (const file of ["LICENSE", "CHANGELOG.md"]) {
    await Deno.copyFile(`${root}/${file}`, `${folder}/${file}`);
  }
  await Deno.copyFile(`${root}/docs/node.md`, `${folder}/README.md`);
  const { name, version, license } = manifest;
  const description = "A rank of Tierfold for Node.js: averages model weights across machines";
  const entry = { types: `./types/${ENTRY.replace(".ts", ".d.ts")}`, default: "./index.js" };
  const meta = {
    ...{ name, version, license, description, type: "module" },
    ...{ exports: { ".": entry }, engines: { node: NODE }, sideEffects: false },
  };
  await Deno.writeTextFile(`${folder}/package.json`, `${JSON.stringify(meta, null, 2)}\n`);
}

/**
 * Declares every module that the types of the entry lead to.
 *
 * What they say of packages is not looked up: the API of {@link ENTRY} names none of their types.
 */
async function declare(root: string, folder: string): Promise<void> {
  const base = root.replace(/\/$/, "");
  const declared = new Map<string, string>();
  const program = ts.createProgram([`${base}/${ENTRY}`], {
    rootDir: base,
    outDir: "/",
    declaration: true,
    emitDeclarationOnly: true,
    // `deno task check` has checked them; here Deno's own types are missing.
    noCheck: true,
    strict: true,
    exactOptionalPropertyTypes: true,
    allowImportingTsExtensions: true,
    rewriteRelativeImportExtensions: true,
    resolveJsonModule: true,
    target: ts.ScriptTarget.ESNext,
    module: ts.ModuleKind.ESNext,
    moduleResolution: ts.ModuleResolutionKind.Bundler,
    types: [],
  });
  program.emit(undefined, (file, text) => declared.set(file, text));
  const done = new Set<string>();
  const left = [`/${ENTRY.replace(/\.ts$/, ".d.ts")}`];
  for (let path = left.pop(); path !== undefined; path = left.pop()) {
    if (done.has(path)) continue;
    done.add(path);
    const text = declared.get(path);
    if (text === undefined) throw new Error(`declaring the types of ${ENTRY}: no ${path}`);
    for (const [, , specifier] of text.matchAll(/(from |import\()"(\.[^"]+)\.[jt]s"/g)) {
      left.push(new URL(`${specifier}.d.ts`, `file://${path}`).pathname);
    }
    const file = `${folder}/types${path}`;
    await Deno.mkdir(file.slice(0, file.lastIndexOf("/")), { recursive: true });
    await Deno.writeTextFile(
      file,
      text.replaceAll(/(from |import\()"(\.[^"]+)\.ts"/g, '$1"$2.js"'),
    );
  }
}

if (import.meta.main) {
  const root = new URL("../", import.meta.url).pathname;
  await using tree = await CommitTree.open(root);
  await makePackage(tree.folder, `${root}bin/npm`);
  console.log(`bin/npm: ${manifest.name} ${manifest.version} of ${tree.what}`);
}
