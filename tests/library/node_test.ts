// The package for Node.js, as Node runs it and as TypeScript sees it.
import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import ts from "typescript";
import { Child } from "../../bench/child.ts";
import { output } from "../../scripts/command.ts";
import { makePackage } from "../../scripts/npm.ts";
import { Cluster } from "../cluster/cluster.ts";
import { installed } from "../tools.ts";
import { hex, SESSION_SALT } from "../vectors.ts";

const root = new URL("../../", import.meta.url).pathname;
const SALT = hex(SESSION_SALT);

const version = installed("node")
  ? new TextDecoder().decode(
    new Deno.Command("node", { args: ["--version"], stderr: "null" }).outputSync().stdout,
  )
  : "";
const why = version === ""
  ? " (skipped: there is no node)"
  : Number(/^v(\d+)/.exec(version)?.[1]) < 20
  ? ` (skipped: node is ${version.trim()}, older than 20)`
  : "";

let made: Promise<string> | undefined;

/** The package, made once a process. */
function madePackage(): Promise<string> {
  return made ??= (async () => {
    const folder = await Deno.makeTempDir();
    globalThis.addEventListener("unload", () => Deno.removeSync(folder, { recursive: true }));
    await makePackage(root, folder);
    return folder;
  })();
}

/** A project that has installed the package. */
async function withProject(body: (folder: string) => Promise<void>): Promise<void> {
  const folder = await Deno.makeTempDir();
  try {
    await Deno.mkdir(`${folder}/node_modules/@tierfold`, { recursive: true });
    await Deno.symlink(await madePackage(), `${folder}/node_modules/@tierfold/tierfold`);
    await Deno.writeTextFile(`${folder}/package.json`, `{ "type": "module" }`);
    await body(folder);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}

const FORMATS = `
import assert from "node:assert/strict";
import * as tierfold from "@tierfold/tierfold";
const { decodeGarw, DweError, encodeGarw, fedavg, gammaMass, openDwe, sealDwe } = tierfold;
const block = { shape: [2], values: new Float32Array([1, 2]), numSamples: 3 };
assert.deepEqual(decodeGarw(encodeGarw(block)), block);
assert.deepEqual([...fedavg([block, { ...block, values: new Float32Array([5, 6]), numSamples: 1 }])], [2, 3]);
const layers = [{ layerIndex: 0, shape: [2], values: block.values }];
const current = new TextEncoder().encode("key");
const bytes = sealDwe({ sessionId: "a", sequence: 1n, layers }, current);
assert.deepEqual(openDwe(bytes, { current }).layers, layers);
bytes[60] ^= 1;
assert.throws(() => openDwe(bytes, { current }), DweError);
assert.equal(gammaMass(9, 0.5), 3);
assert.equal(tierfold.DeltaListener, undefined);
await assert.rejects(
  tierfold.RankClient.connect({ relay: "127.0.0.1:1", rank: 0, worldSize: 1, salt: "${SALT}", joinTimeoutMs: 100 }),
  (error) => error instanceof tierfold.TransportError && error.code === "unreachable",
);
console.log("all is well on " + process.version);
`;

const RANK = `
import { RankClient } from "@tierfold/tierfold";
const client = await RankClient.connect({ salt: process.env.TIERFOLD_SALT });
const small = new Float32Array([client.rank, 2]);
const large = new Float32Array(300_000).fill(client.rank);
await client.allReduce([small], { mass: 1 });
const { mass } = await client.allReduce([large], { mass: 3 });
console.log("got " + JSON.stringify([...small, large[0], large.at(-1), mass]));
await client.close();
`;

Deno.test({
  name: `node: formats, masses and errors${why}`,
  ignore: why !== "",
  fn: () =>
    withProject(async (folder) => {
      await Deno.writeTextFile(`${folder}/formats.js`, FORMATS);
      assertStringIncludes(await output(["node", "formats.js"], folder), "all is well on v");
    }),
});

Deno.test({
  name: `node: a rank on Node and one on Deno average over one relay${why}`,
  ignore: why !== "",
  fn: () =>
    withProject(async (folder) => {
      await Deno.writeTextFile(`${folder}/rank.js`, RANK);
      await using cluster = await Cluster.start([[0, 1]]);
      const node = new Child({
        name: "a rank on Node",
        command: ["node", "rank.js"],
        cwd: folder,
        env: {
          TIERFOLD_SALT: SALT,
          TIERFOLD_RELAY: cluster.relays[0]!.address,
          TIERFOLD_RANK: "1",
          TIERFOLD_WORLD_SIZE: "2",
        },
      });
      try {
        const deno = await cluster.ranks([0]);
        await deno.begin([[0, 4]]);
        assertEquals(await deno.round(), { masses: [2], values: [[0.5, 3]] });
        await deno.begin([Array<number>(300_000).fill(0)]);
        const { masses, values } = await deno.round();
        assertEquals([masses, values[0]![0], values[0]!.at(-1)], [[4], 0.75, 0.75]);
        assertEquals(JSON.parse(await node.expect("got ", 60_000)), [0.5, 3, 0.75, 0.75, 4]);
        assertEquals(await node.finish(30_000), 0, node.stderr);
        await cluster.finish([deno]);
      } finally {
        node.kill("SIGKILL");
        await node.finish();
      }
    }),
});

const TYPED = `
import { type GarwBlock, RankClient, TransportError, type RoundResult } from "@tierfold/tierfold";
export async function train(weights: Float32Array, block: GarwBlock): Promise<RoundResult> {
  const client = await RankClient.connect({ relay: "a:1", rank: 0, worldSize: 2, salt: "" });
  const shape: readonly number[] = block.shape;
  if (shape.length > 3) throw new TransportError("closed", "text");
  return await client.allReduce([weights], { mass: 1 });
}
export const wrong: string = RankClient.connect;
`;

Deno.test("node: TypeScript finds the types, all of them", () =>
  withProject(async (folder) => {
    await Deno.writeTextFile(`${folder}/typed.ts`, TYPED);
    const program = ts.createProgram([`${folder}/typed.ts`], {
      strict: true,
      noEmit: true,
      skipLibCheck: false,
      target: ts.ScriptTarget.ES2024,
      module: ts.ModuleKind.NodeNext,
      moduleResolution: ts.ModuleResolutionKind.NodeNext,
      lib: ["lib.esnext.d.ts", "lib.dom.d.ts"],
      types: [],
    });
    const problems = ts.getPreEmitDiagnostics(program).map(({ messageText, file }) =>
      `${file?.fileName}: ${ts.flattenDiagnosticMessageText(messageText, " ")}`
    );
    // The last line of the sample is wrong on purpose: without types it would pass.
    assertEquals(problems.length, 1, problems.join("\n"));
    assertStringIncludes(problems[0]!, "is not assignable to type 'string'");
    const { exports } = JSON.parse(
      await Deno.readTextFile(`${folder}/node_modules/@tierfold/tierfold/package.json`),
    );
    assert(exports["."].types.endsWith(".d.ts"));
  }));
