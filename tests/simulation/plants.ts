// Bugs that the simulation must find. Each is put into a copy of the product by replacing a piece of
// its text, which must be there.

/** One change of a file. */
interface Change {
  readonly file: string;
  readonly find: string;
  readonly replace: string;
}

/** One bug. */
export interface Plant {
  readonly name: string;
  readonly changes: readonly Change[];
  /** Within how many seeds it must be found. */
  readonly within: number;
}

export const PLANTS: readonly Plant[] = [
  {
    name: "a late frame's mass counts, its values do not",
    changes: [{
      file: "fold/frame_fold.ts",
      find: "      await addTo(piece, frames);\n      await piece.sum.finish(factor);",
      replace: "      await addTo(piece, frames.length > 2 ? frames.slice(0, -1) : frames);\n" +
        "      await piece.sum.finish(factor);",
    }],
    within: 100,
  },
  {
    name: "frames are folded in the order of arrival",
    changes: [{
      file: "fold/barrier.ts",
      find: "return [...this.#frames.keys()].sort((a, b) => a - b);",
      replace: "return [...this.#frames.keys()];",
    }],
    within: 100,
  },
  {
    name: "a rank that comes back gets the result of the round before",
    changes: [{
      file: "relay/server.ts",
      find: "    port.enter(rank);\n",
      replace: "    port.enter(rank);\n" +
        "    if (this.#outcome.rounds > 0) {\n" +
        "      setTimeout(() => port.sendResult(this.#out.prefixed, 0), 1);\n" +
        "    }\n",
    }],
    within: 100,
  },
  {
    name: "the relay's deadline for a round is forgotten",
    changes: [{
      file: "relay/server.ts",
      find: "for (const rank of awaited) {",
      replace: "for (const rank of [] as number[]) {",
    }],
    within: 500,
  },
  {
    name: "a relay that comes back has its last frame counted again",
    changes: [{
      file: "controller/returns.ts",
      find: 'if (!pending) return "back";',
      replace: 'return pending ? "again" : "back";',
    }],
    within: 500,
  },
  {
    name: "a frame is used before its tag was compared",
    changes: [{
      file: "wire/mac.ts",
      find: "return a.length === b.length && timingSafeEqual",
      replace: "return a.length === b.length || timingSafeEqual",
    }],
    within: 500,
  },
];

const ROOT = new URL("../../", import.meta.url);
/** What no run of the simulation loads. */
const LEFT_OUT = new Set([
  ".git",
  "bench",
  "bin",
  "clients",
  "coverage",
  "deploy",
  "docs",
  "examples",
  "node_modules",
  "npm",
  "tests",
]);

async function copy(from: URL, to: URL): Promise<void> {
  if ((await Deno.stat(from)).isFile) return await Deno.copyFile(from, to);
  await Deno.mkdir(to, { recursive: true });
  for await (const { name } of Deno.readDir(from)) {
    await copy(new URL(`${from}/${name}`), new URL(`${to}/${name}`));
  }
}

/**
 * Copies the product and plants a bug in the copy.
 *
 * @returns The copy's folder, which is the caller's to remove.
 * @throws {Error} when a piece of text is not there exactly once.
 */
export async function plant({ name, changes }: Plant): Promise<URL> {
  const root = new URL(`file://${await Deno.makeTempDir({ prefix: "tierfold-plant-" })}/`);
  for await (const { name: part } of Deno.readDir(ROOT)) {
    if (!LEFT_OUT.has(part)) await copy(new URL(part, ROOT), new URL(part, root));
  }
  await Deno.mkdir(new URL("tests", root));
  await copy(new URL("tests/simulation", ROOT), new URL("tests/simulation", root));
  for (const { file, find, replace } of changes) {
    const text = await Deno.readTextFile(new URL(file, root));
    if (text.split(find).length !== 2) {
      throw new Error(
        `planting ${JSON.stringify(name)}: ${file} does not have this text exactly once, so the ` +
          `plant must be renewed:\n${find}`,
      );
    }
    await Deno.writeTextFile(new URL(file, root), text.replace(find, () => replace));
  }
  return root;
}
