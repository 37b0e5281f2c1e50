// The intake over real HTTP: many peers, every refusal, and what a pass leads to.
import {
  assert,
  assertEquals,
  assertInstanceOf,
  assertRejects,
  assertStringIncludes,
} from "@std/assert";
import { AUTH_HEADERS, signedHeaders } from "../../controller/passes/auth.ts";
import { IntakeError } from "../../controller/passes/client.ts";
import { DirectoryShelf } from "../../controller/passes/directory_shelf.ts";
import { fedavg } from "../../controller/passes/fedavg.ts";
import type { StartJson } from "../../controller/passes/json.ts";
import type { PassResult } from "../../controller/passes/service.ts";
import { encodeGarw, garwCid } from "../../wire/garw.ts";
import { SESSION_SALT as SALT, vectorBytes } from "../vectors.ts";
import { aggregatedCid, type Rig, withIntake } from "./harness.ts";

const START: StartJson = {
  round: 1,
  initiator: "lead",
  expected: 2,
  layers: [{ name: "w", shape: [2, 2] }],
};
const KEY = "1-lead";
const BLOCK = { shape: [2, 2], values: Float32Array.of(1, 2, 3, 4), numSamples: 10 };

interface Answer {
  status: number;
  code: string;
  message: string;
}

/** Sends a request as it is, and reads the refusal. */
async function send(
  { url }: Rig,
  method: string,
  path: string,
  options: { body?: Uint8Array<ArrayBuffer>; headers?: Record<string, string> } = {},
): Promise<Answer> {
  const { body, headers } = options;
  const signed = signedHeaders({ method, path, ...(body === undefined ? {} : { body }) }, SALT);
  const response = await fetch(url + path, {
    method,
    headers: { ...signed, ...headers },
    ...(body === undefined ? {} : { body }),
  });
  const { error } = await response.json();
  return { status: response.status, code: error?.code, message: error?.message };
}

async function refusal(run: () => Promise<unknown>): Promise<string> {
  const error = await assertRejects(run);
  assertInstanceOf(error, IntakeError);
  return `${(error as IntakeError).status} ${(error as IntakeError).code}`;
}

Deno.test("fifty peers submit at once, and get the mean that the exported function gives", async () => {
  await withIntake({}, async (rig) => {
    const count = 50;
    const lead = rig.client("lead");
    await lead.start({ ...START, expected: count, layers: [{ name: "w" }, { name: "b" }] });
    const blocks = Array.from({ length: count }, (_, i) => ({
      peer: `peer-${String(i).padStart(2, "0")}`,
      w: Float32Array.from({ length: 1_000 }, (_, k) => Math.sin(i * 1_000 + k)),
      b: Float32Array.of(i, -i, i / 7),
      numSamples: 10 + i * i,
    }));
    await Promise.all(blocks.map(async ({ peer, w, b, numSamples }) => {
      const client = rig.client(peer);
      await client.contribute(KEY, "w", { shape: [10, 100], values: w, numSamples });
      await client.contribute(KEY, "b", { shape: [3], values: b, numSamples });
    }));
    const pass = await lead.wait(KEY, 10_000);
    assertEquals(pass.received, count);
    assertEquals(pass.contributions.length, 2 * count);
    assertEquals(pass.num_samples, blocks.reduce((sum, { numSamples }) => sum + numSamples, 0));
    for (const name of ["w", "b"] as const) {
      const expected = fedavg(blocks.map((block) => ({
        shape: [block[name].length],
        values: block[name],
        numSamples: block.numSamples,
      })));
      const { cid, shape } = pass.layers.find((layer) => layer.name === name)!;
      const { values, numSamples } = await lead.block(cid!);
      assertEquals(numSamples, pass.num_samples);
      assertEquals(shape, name === "w" ? [10, 100] : [3]);
      const total = pass.num_samples!;
      for (let i = 0; i < values.length; i++) {
        const exact = blocks.reduce((sum, b) => sum + b[name][i]! * b.numSamples / total, 0);
        const scale = blocks.reduce(
          (sum, b) => sum + Math.abs(b[name][i]!) * b.numSamples / total,
          0,
        );
        // The bound that docs/federated.md gives: where the two ways of averaging can differ.
        assert(Math.abs(values[i]! - expected[i]!) <= 2 * (count + 2) * 2 ** -24 * scale);
        assert(Math.abs(values[i]! - exact) <= 1e-6 * Math.max(1, scale), `${values[i]} ${exact}`);
      }
    }
    // Several layers: the pass's own name is that of all values in one block.
    const whole = await lead.block(aggregatedCid(pass));
    assertEquals(whole.values.length, 1_003);
  });
});

Deno.test("one contributor's order of arrival does not change a bit", async () => {
  const cids = new Set<string>();
  for (const order of [["a", "b", "c"], ["c", "a", "b"], ["b", "c", "a"]]) {
    await withIntake({}, async (rig) => {
      await rig.client("lead").start({ ...START, expected: 3, layers: [{ name: "w" }] });
      const values: Record<string, number> = { a: 1e8, b: 1, c: -1e8 };
      for (const peer of order) {
        const block = { shape: [1], values: Float32Array.of(values[peer]!), numSamples: 1 };
        await rig.client(peer).contribute(KEY, "w", block);
      }
      cids.add(aggregatedCid(await rig.client("lead").wait(KEY, 5_000)));
    });
  }
  assertEquals(cids.size, 1);
});

Deno.test("a result is handed on with shapes and values before the pass is Complete", async () => {
  const results: PassResult[] = [];
  await withIntake({ passes: { onComplete: (result) => results.push(result) } }, async (rig) => {
    const client = rig.client("a");
    const started = await client.start({ ...START, expected: 1, consensus: true });
    assertEquals([started.key, started.state.kind, started.consensus], [KEY, "Pending", true]);
    const accepted = await client.contribute(KEY, "w", BLOCK);
    assertEquals(accepted.cid, garwCid(BLOCK));
    const pass = await client.wait(KEY, 5_000);
    // Of one contribution the mean is itself, whatever its samples: here also in its bits.
    assertEquals(aggregatedCid(pass), accepted.cid);
    assertEquals(results.length, 1);
    assertEquals(results[0]!.layers[0], { name: "w", shape: [2, 2], values: BLOCK.values });
    assertEquals(results[0]!.spec.consensus, true);
  });
});

Deno.test("a repeat is a no-op, another block is refused, and nothing of it is kept", async () => {
  await withIntake({}, async (rig) => {
    const client = rig.client("a");
    await client.start(START);
    assertEquals((await client.contribute(KEY, "w", BLOCK)).repeated, false);
    assertEquals((await client.contribute(KEY, "w", BLOCK)).repeated, true);
    const other = { ...BLOCK, values: Float32Array.of(9, 9, 9, 9) };
    const code = await refusal(() => client.contribute(KEY, "w", other));
    assertEquals(code, "409 ConflictingContribution");
    assertEquals(await refusal(() => client.block(garwCid(other))), "404 BlockNotFound");
    const { state, contributions } = await client.read(KEY);
    assertEquals(state, { kind: "CollectingGradients", received: 1, expected: 2 });
    assertEquals(contributions.map(({ peer, cid }) => [peer, cid]), [["a", garwCid(BLOCK)]]);
  });
});

Deno.test("every bad contribution is refused by name, and leaves the pass as it was", async () => {
  await withIntake({ maxBlockBytes: 4_096 }, async (rig) => {
    const client = rig.client("a");
    const peers = ["a", "b"];
    await client.start({ ...START, peers, max_samples: 100, max_norm: 50 });
    const put = (body: Uint8Array<ArrayBuffer>, peer = "a", layer = "w", key = KEY) =>
      send(rig, "PUT", `/v1/passes/${key}/peers/${peer}/layers/${layer}`, { body });
    const block = (changes: Partial<typeof BLOCK>) => put(encodeGarw({ ...BLOCK, ...changes }));
    const good = encodeGarw(BLOCK);
    const is = async (
      answer: Promise<Answer>,
      status: number,
      code: string,
      ...words: string[]
    ) => {
      const { message, ...rest } = await answer;
      assertEquals(rest, { status, code }, message);
      for (const word of words) assertStringIncludes(message, word);
    };
    await is(put(vectorBytes("bad_garw_magic.bin")), 400, "InvalidMagic", "GARW");
    await is(put(vectorBytes("bad_garw_truncated.bin")), 400, "TruncatedData");
    await is(put(vectorBytes("bad_garw_huge_shape_len.bin")), 400, "TruncatedData");
    await is(put(new Uint8Array()), 400, "TruncatedData");
    await is(put(Uint8Array.of(...good, 1)), 400, "TrailingData");
    await is(block({ shape: [4] }), 422, "ShapeMismatch", "[4]", "[2, 2]", '"a"', '"w"');
    await is(block({ shape: [2, 3] }), 422, "ShapeMismatch", "6 elements", "4 values");
    await is(block({ values: Float32Array.of(1, NaN, 3, 4) }), 422, "NonFinite", "value 1");
    await is(block({ values: Float32Array.of(1, 2, -Infinity, 4) }), 422, "NonFinite", "value 2");
    await is(block({ values: Float32Array.of(40, 40, 0, 0) }), 422, "NormExceeded", "56.5685");
    await is(block({ numSamples: 101 }), 422, "InvalidSamples", "101", "100");
    await is(put(good, "mallory"), 403, "UnknownPeer", "mallory");
    await is(put(good, "a", "v"), 404, "UnknownLayer", '"v"', "w");
    await is(put(good, "a", "w", "9-lead"), 404, "PassNotFound", "9-lead");
    await is(put(new Uint8Array(5_000)), 413, "BodyTooLarge", "4096");
    // The body that was signed, and another one on the way.
    const bodyHash = signedHeaders({ method: "PUT", path: "/", body: good }, SALT);
    assert(bodyHash[AUTH_HEADERS.bodyHash] !== undefined);
    const swapped = Uint8Array.from(good);
    swapped[20]! ^= 1;
    const path = `/v1/passes/${KEY}/peers/a/layers/w`;
    const headers = signedHeaders({ method: "PUT", path, body: good }, SALT);
    await is(send(rig, "PUT", path, { body: swapped, headers }), 400, "BodyHashMismatch");
    // Chunked, without announcing its length.
    const huge = ReadableStream.from(Array.from({ length: 50 }, () => new Uint8Array(1_000)));
    const response = await fetch(rig.url + path, {
      method: "PUT",
      body: huge,
      headers: signedHeaders({ method: "PUT", path, body: good }, SALT),
    });
    assertEquals([response.status, (await response.json()).error.code], [413, "BodyTooLarge"]);
    assertEquals((await client.read(KEY)).state.kind, "Pending");
    // After all that the pass still works.
    await rig.client("a").contribute(KEY, "w", BLOCK);
    await rig.client("b").contribute(KEY, "w", { ...BLOCK, values: Float32Array.of(3, 4, 5, 6) });
    const { layers } = await client.wait(KEY, 5_000);
    assertEquals([...(await client.block(layers[0]!.cid!)).values], [2, 3, 4, 5]);
    assertEquals(
      await refusal(() => client.contribute(KEY, "w", BLOCK)),
      "409 PassAlreadyTerminal",
    );
  });
});

Deno.test("unsigned, forged, old and replayed requests are refused before anything else", async () => {
  await withIntake({}, async (rig) => {
    const get = async (headers: Record<string, string>, path = "/v1/passes") => {
      const response = await fetch(rig.url + path, { headers });
      const { error } = await response.json();
      return `${response.status} ${error?.code ?? ""}`;
    };
    assertEquals(await get({}), "401 MissingSignature");
    assertEquals(await get({}, "/v1/nothing"), "401 MissingSignature");
    const wrong = signedHeaders({ method: "GET", path: "/v1/passes" }, new Uint8Array(16));
    assertEquals(await get(wrong), "401 BadSignature");
    const old = signedHeaders({ method: "GET", path: "/v1/passes" }, SALT, Date.now() - 61_000);
    assertEquals(await get(old), "401 StaleTimestamp");
    const fine = signedHeaders({ method: "GET", path: "/v1/passes" }, SALT);
    assertEquals(await get(fine, "/v1/passes?x=1"), "401 BadSignature");
    assertEquals(await get(fine), "200 ");
    assertEquals(await get(fine), "401 ReplayedNonce");
  });
});

Deno.test("paths, methods and starts that do not exist are refused by name", async () => {
  await withIntake({ passes: { maxPasses: 1 } }, async (rig) => {
    const start = (value: unknown) =>
      send(rig, "POST", "/v1/passes", { body: new TextEncoder().encode(JSON.stringify(value)) });
    const short = async (answer: Promise<Answer>) => {
      const { status, code } = await answer;
      return `${status} ${code}`;
    };
    assertEquals(await short(send(rig, "GET", "/v1/nothing")), "404 NoSuchPath");
    assertEquals(await short(send(rig, "GET", "/v1/passes/1-x/peers/a")), "404 NoSuchPath");
    assertEquals(await short(send(rig, "GET", "/elsewhere")), "404 NoSuchPath");
    assertEquals(await short(send(rig, "PUT", "/v1/passes")), "405 MethodNotAllowed");
    assertEquals(await short(send(rig, "DELETE", "/v1/passes")), "400 InvalidQuery");
    assertEquals(
      await short(send(rig, "DELETE", "/v1/passes?before_round=-1")),
      "400 InvalidQuery",
    );
    assertEquals(await short(send(rig, "GET", "/v1/passes/none")), "404 PassNotFound");
    assertEquals(await short(send(rig, "GET", "/v1/blocks/grad-xyz")), "400 InvalidCid");
    assertEquals(
      await short(send(rig, "GET", "/v1/blocks/grad-0123456789abcdef")),
      "404 BlockNotFound",
    );
    assertEquals(
      await short(send(rig, "POST", "/v1/passes", { body: new TextEncoder().encode("{") })),
      "400 InvalidBody",
    );
    for (
      const [field, changes] of Object.entries({
        round: { round: -1 },
        initiator: { initiator: "a b" },
        expected: { expected: 0 },
        layers: { layers: [] },
        "layers.0.shape": { layers: [{ name: "w", shape: ["2"] }] },
        typo: { typo: 1 },
        max_norm: { max_norm: 0 },
      })
    ) {
      const { status, code, message } = await start({ ...START, ...changes });
      assertEquals([status, code], [400, "InvalidBody"], field);
      assertStringIncludes(message, field);
    }
    assertEquals((await start({ ...START, quorum: 3 })).code, "InvalidPass");
    await rig.client("lead").start(START);
    assertEquals(await short(start(START)), "409 PassExists");
    assertEquals(await short(start({ ...START, round: 2 })), "503 TooManyPasses");
  });
});

Deno.test("a pass past its deadline fails, or goes on with its quorum", async () => {
  await withIntake({}, async (rig) => {
    const lead = rig.client("lead");
    await lead.start({ ...START, deadline_ms: 1_000 });
    await lead.start({ ...START, round: 2, expected: 5, quorum: 2, deadline_ms: 1_000 });
    for (const peer of ["a", "b"]) await rig.client(peer).contribute("2-lead", "w", BLOCK);
    const pass = await lead.wait("2-lead", 5_000);
    assertEquals([pass.state.kind, pass.received, pass.num_samples], ["Complete", 2, 20]);
    assertEquals(await refusal(() => lead.wait(KEY, 5_000)), "0 PassFailed");
    assertEquals(await refusal(() => lead.contribute(KEY, "w", BLOCK)), "409 PassAlreadyTerminal");
    assertEquals((await lead.read(KEY)).state, {
      kind: "Failed",
      reason: "after 1000 ms 0 peers had delivered every layer, 2 were needed",
    });
  });
});

Deno.test("a pass whose sum is beyond f32 fails with the reason", async () => {
  await withIntake({}, async (rig) => {
    await rig.client("lead").start(START);
    const values = Float32Array.of(3e38, 0, 0, 0);
    for (const peer of ["a", "b"]) {
      await rig.client(peer).contribute(KEY, "w", { ...BLOCK, values });
    }
    assertEquals(await refusal(() => rig.client("lead").wait(KEY, 5_000)), "0 PassFailed");
    const { state } = await rig.client("lead").read(KEY);
    assertStringIncludes(state.kind === "Failed" ? state.reason : "", "Infinity");
  });
});

Deno.test("removing old rounds removes their blocks, and old passes make room for new ones", async () => {
  await withIntake({ passes: { maxPasses: 3 } }, async (rig) => {
    const client = rig.client("a");
    const run = async (round: number, value: number) => {
      await client.start({ ...START, round, expected: 1 });
      const block = { ...BLOCK, values: BLOCK.values.map((v) => v + value) };
      await client.contribute(`${round}-lead`, "w", block);
      await client.wait(`${round}-lead`, 5_000);
      return garwCid(block);
    };
    const cids: string[] = [];
    for (let round = 1; round <= 4; round++) cids.push(await run(round, round));
    assertEquals(rig.service.list().map(({ round }) => round), [2, 3, 4]);
    assertEquals(await refusal(() => client.block(cids[0]!)), "404 BlockNotFound");
    const path = "/v1/passes?before_round=4";
    const response = await fetch(rig.url + path, {
      method: "DELETE",
      headers: signedHeaders({ method: "DELETE", path }, SALT),
    });
    assertEquals(await response.json(), { removed: ["2-lead", "3-lead"] });
    assertEquals(await refusal(() => client.block(cids[1]!)), "404 BlockNotFound");
    assertEquals((await client.block(cids[3]!)).numSamples, 10);
  });
});

Deno.test("the blocks of a directory store survive, and a full store says so", async () => {
  const directory = await Deno.makeTempDir();
  try {
    const cid = garwCid(BLOCK);
    await withIntake(
      { shelf: await DirectoryShelf.open(directory), storeBytes: 40 },
      async (rig) => {
        const client = rig.client("a");
        await client.start({ ...START, expected: 3 });
        await client.contribute(KEY, "w", BLOCK);
        const other = { ...BLOCK, numSamples: 11 };
        assertEquals(
          await refusal(() => rig.client("b").contribute(KEY, "w", other)),
          "507 StoreFull",
        );
        // The same values and samples are one block, whoever brings them.
        await rig.client("b").contribute(KEY, "w", BLOCK);
      },
    );
    await withIntake({ shelf: await DirectoryShelf.open(directory) }, async (rig) => {
      assertEquals((await rig.client("a").block(cid)).values, BLOCK.values);
      await Deno.writeFile(`${directory}/${cid}.garw`, encodeGarw({ ...BLOCK, numSamples: 11 }));
      assertEquals(await refusal(() => rig.client("a").block(cid)), "500 CorruptBlock");
    });
  } finally {
    await Deno.remove(directory, { recursive: true });
  }
});

Deno.test("a body that stops in the middle is given up, and bodies together are bounded", async () => {
  await withIntake({ bodyDeadlineMs: 200, maxBodiesBytes: 10_000 }, async (rig) => {
    await rig.client("lead").start(START);
    const path = `/v1/passes/${KEY}/peers/a/layers/w`;
    const stall = async (bytes: number) => {
      const { promise, resolve } = Promise.withResolvers<void>();
      const body = ReadableStream.from(async function* () {
        yield new Uint8Array(bytes);
        await promise;
      }());
      const response = await fetch(rig.url + path, {
        method: "PUT",
        body,
        headers: signedHeaders({ method: "PUT", path, body: new Uint8Array(bytes) }, SALT),
      });
      resolve();
      return `${response.status} ${(await response.json()).error.code}`;
    };
    assertEquals(await stall(100), "408 BodyTooSlow");
    assertEquals(await stall(6_000), "503 Busy");
    assertEquals((await rig.client("a").contribute(KEY, "w", BLOCK)).repeated, false);
  });
});

Deno.test("a large upload of a stranger is refused without being read", async () => {
  await withIntake({}, async (rig) => {
    await rig.client("lead").start(START);
    const path = `/v1/passes/${KEY}/peers/a/layers/w`;
    const body = new Uint8Array(1024 ** 2);
    let sent = 0;
    const upload = ReadableStream.from(async function* () {
      for (; sent < 200; sent++) yield body;
    }());
    const headers = signedHeaders({ method: "PUT", path, body }, new Uint8Array(16));
    const response = await fetch(rig.url + path, { method: "PUT", body: upload, headers })
      .catch(() => undefined);
    // The connection may break before the answer is read, since nobody reads on.
    if (response !== undefined) {
      assertEquals(response.status, 401);
      await response.body?.cancel();
    }
    assert(sent < 200, `${sent} MiB were taken`);
    assertEquals((await rig.client("a").contribute(KEY, "w", BLOCK)).repeated, false);
  });
});
