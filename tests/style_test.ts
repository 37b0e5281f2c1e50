import { assert, assertEquals } from "@std/assert";

/** A source file: its path from the repository's root, and what it holds. */
interface Source {
  readonly path: string;
  readonly text: string;
}

/** Gives a sentence for each place where a file breaks a rule. */
type Rule = (source: Source) => string[];

/** Folders from the ground up: each imports only from itself and those before it. */
const LAYERS = [
  "wire",
  "transport",
  "kernels",
  "workers",
  "frames",
  "fold",
  "delta",
  "serve",
  "cli",
  "observe",
];

/** On top of the layers, side by side: these do not import each other. */
const TIERS = ["rank", "relay", "controller"];

/** On top of the tiers, which it looks at from outside. */
const TOP = "doctor";

/** May import from everywhere; nobody imports from them. */
const FREE = ["examples", "bench", "tests", "scripts", "clients"];

const MAX_LINES = 500;

const folderOf = (path: string) => path.includes("/") ? path.slice(0, path.indexOf("/")) : "";

/** The source without its comments; strings stay. */
function code(text: string): string {
  const tokens =
    /("(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|`(?:\\.|[^`\\])*`)|\/\*[\s\S]*?\*\/|\/\/[^\n]*/g;
  return text.replace(tokens, (_, string?: string) => string ?? " ");
}

/** What a file imports, workers by URL included. */
function imports(text: string): string[] {
  const clause = /\b(?:from|import)\s*\(?\s*"([^"]+)"|new URL\(\s*"([^"]+\.ts)"/g;
  return [...code(text).matchAll(clause)].map(([, module, url]) => module ?? `./${url}`);
}

/** The folders that files of `folder` may import from. */
function allowed(folder: string): string[] {
  if (TIERS.includes(folder)) return [...LAYERS, folder];
  return LAYERS.slice(0, LAYERS.indexOf(folder) + 1);
}

const direction: Rule = ({ path, text }) => {
  const folder = folderOf(path);
  if (FREE.includes(folder)) return [];
  if (folder !== "" && folder !== TOP && !LAYERS.includes(folder) && !TIERS.includes(folder)) {
    return [`${path}: folder ${folder} has no place in the order of imports`];
  }
  const all = [...LAYERS, ...TIERS, TOP];
  const reach = folder === "" || folder === TOP ? all : allowed(folder);
  return imports(text).filter((module) => module.startsWith(".")).flatMap((module) => {
    const target = new URL(module, `file:///${path}`).pathname.slice(1);
    if (target === "deno.json" || reach.includes(folderOf(target))) return [];
    return [`${path}: imports ${module}; ${folder || "an entry"} imports only from ${reach}`];
  });
};

const mappedImports: Rule = ({ path, text }) =>
  imports(text)
    .filter((module) => /^(npm|jsr|https?):/.test(module))
    .map((module) => `${path}: imports ${module}; name it in deno.json instead`);

const header: Rule = ({ path, text }) => {
  // What a program writes says so instead, in its first line.
  if (folderOf(path) === "tests" || text.startsWith("// Written by ")) return [];
  const comment = /^\/\*\*[\s\S]*?\*\//.exec(text)?.[0] ?? "";
  return /^ \* @module$/m.test(comment) ? [] : [`${path}: starts with no doc comment with @module`];
};

const length: Rule = ({ path, text }) => {
  const lines = text.split("\n").length - 1;
  return lines <= MAX_LINES ? [] : [`${path}: ${lines} lines, more than ${MAX_LINES}`];
};

const consoleCalls: Rule = ({ path, text }) => {
  if (FREE.includes(folderOf(path)) || !/\bconsole\b\s*[.[]/.test(code(text))) return [];
  return [`${path}: uses console; there is a logger, and printListening for standard output`];
};

const subtle: Rule = ({ path, text }) => {
  const off = folderOf(path) === "" || FREE.includes(folderOf(path)) || folderOf(path) === "cli";
  if (off || !/\bsubtle\b/.test(code(text))) return [];
  return [`${path}: uses crypto.subtle, which takes no shared memory and hashes at half the speed`];
};

const reExports: Rule = ({ path, text }) => {
  if (path !== "mod.ts") return [];
  const statement = /export\s+(?:type\s+)?(?:\{[^}]*\}|\*(?:\s+as\s+\w+)?)\s+from\s+"\.[^"]*";/g;
  const rest = code(text).replace(statement, "").trim();
  return rest === "" ? [] : [`${path}: holds more than re-exports: ${rest.slice(0, 60)}`];
};

const WORDS = ["TO" + "DO", "FIX" + "ME", "XX" + "X", "HA" + "CK"];

const unfinished: Rule = ({ path, text }) =>
  WORDS.filter((word) => new RegExp(`\\b${word}\\b`).test(text))
    .map((word) => `${path}: says ${word}; finish it or file an issue`);

/** Each rule, with files that break it and files that keep it. */
const rules: readonly {
  readonly name: string;
  readonly rule: Rule;
  readonly bad: readonly Source[];
  readonly good: readonly Source[];
}[] = [
  {
    name: "folders import in one direction",
    rule: direction,
    bad: [
      { path: "wire/a.ts", text: `import { b } from "../kernels/b.ts";` },
      { path: "relay/a.ts", text: `export { b } from "../controller/b.ts";` },
      { path: "rank/a/b.ts", text: `await import("../../relay/b.ts");` },
      { path: "kernels/a.ts", text: `new Worker(new URL("../workers/b.ts", import.meta.url))` },
      { path: "relay/a.ts", text: `import type { b } from "../tests/b.ts";` },
      { path: "relay/a.ts", text: `import "../mod.ts";` },
      { path: "other/a.ts", text: "" },
      { path: "relay.ts", text: `import { b } from "./bench/b.ts";` },
    ],
    good: [
      { path: "relay/a.ts", text: `import { b } from "../cli/b.ts";\nimport "./c.ts";` },
      { path: "relay/a.ts", text: `// import { b } from "../controller/b.ts";` },
      { path: "doctor/a.ts", text: `import { b } from "../relay/b.ts";` },
      { path: "cli/a.ts", text: `import m from "../deno.json" with { type: "json" };` },
      { path: "mod.ts", text: `export * from "./rank/client.ts";` },
      { path: "tests/a.ts", text: `import "../controller.ts";` },
    ],
  },
  {
    name: "packages are named in deno.json",
    rule: mappedImports,
    bad: [{ path: "tests/a.ts", text: `import z from "npm:zod";` }],
    good: [{ path: "tests/a.ts", text: `import z from "zod";\nimport "node:net";` }],
  },
  {
    name: "a file starts with what it is",
    rule: header,
    bad: [
      { path: "wire/a.ts", text: "export {};\n/**\n * @module\n */" },
      { path: "wire/a.ts", text: "/** A. */\n/**\n * @module\n */" },
    ],
    good: [{ path: "wire/a.ts", text: "/**\n * A.\n *\n * @module\n */\n" }],
  },
  {
    name: `no file passes ${MAX_LINES} lines`,
    rule: length,
    bad: [{ path: "tests/a.ts", text: "\n".repeat(MAX_LINES + 1) }],
    good: [{ path: "tests/a.ts", text: "\n".repeat(MAX_LINES) }],
  },
  {
    name: "no console outside examples, benchmarks and tests",
    rule: consoleCalls,
    bad: [{ path: "relay.ts", text: `console.log("a")` }, {
      path: "wire/a.ts",
      text: `console["log"]`,
    }],
    good: [
      { path: "relay.ts", text: "// console.log is not used" },
      { path: "examples/a.ts", text: "console.log(1)" },
    ],
  },
  {
    name: "no crypto.subtle on the path of a frame",
    rule: subtle,
    bad: [{ path: "rank/a.ts", text: "crypto.subtle.sign()" }],
    good: [{ path: "bench/a.ts", text: "crypto.subtle.sign()" }],
  },
  {
    name: "mod.ts re-exports and does nothing else",
    rule: reExports,
    bad: [
      { path: "mod.ts", text: "export const a = 1;" },
      { path: "mod.ts", text: `export * from "./a.ts";\nstart();` },
    ],
    good: [{
      path: "mod.ts",
      text:
        `/** A. @module */\nexport { a, type B } from "./a.ts";\nexport type { C } from "./b.ts";`,
    }],
  },
  {
    name: "nothing is left for later",
    rule: unfinished,
    bad: WORDS.map((word) => ({ path: "a.ts", text: `// ${word}: more` })),
    good: [{ path: "a.ts", text: "// to do so" }],
  },
];

const SKIPPED = new Set([".git", "node_modules", "bin", "coverage"]);

async function* sources(folder: URL, prefix = ""): AsyncGenerator<Source> {
  for await (const entry of Deno.readDir(folder)) {
    const path = `${prefix}${entry.name}`;
    if (entry.isDirectory && !SKIPPED.has(entry.name)) {
      yield* sources(new URL(`${entry.name}/`, folder), `${path}/`);
    } else if (entry.isFile && path.endsWith(".ts")) {
      yield { path, text: await Deno.readTextFile(new URL(entry.name, folder)) };
    }
  }
}

const files = await Array.fromAsync(sources(new URL("../", import.meta.url)));

for (const { name, rule, bad, good } of rules) {
  Deno.test(`style: ${name}`, () => {
    for (const source of bad) {
      assert(rule(source).length > 0, `the rule does not see ${JSON.stringify(source)}`);
    }
    for (const source of good) assertEquals(rule(source), []);
    assert(files.length > 10, `only ${files.length} files were found`);
    // This file holds samples of what it forbids.
    const others = files.filter(({ path }) => path !== "tests/style_test.ts");
    assertEquals(others.flatMap(rule), []);
  });
}
