// Contributors who are not trusted: clipping, the trimmed mean and the median.
import {
  assert,
  assertEquals,
  assertInstanceOf,
  assertRejects,
  assertStringIncludes,
} from "@std/assert";
import * as fc from "fast-check";
import { foldedMean } from "../../controller/passes/aggregate.ts";
import { IntakeError } from "../../controller/passes/client.ts";
import type { PassJson, StartJson } from "../../controller/passes/json.ts";
import type { Contribution } from "../../controller/passes/pass.ts";
import { type Aggregation, planAggregation, trimOf } from "../../controller/passes/policy.ts";
import { trimmedMean } from "../../controller/passes/trimmed.ts";
import { FederatedClient } from "../../controller/passes/client.ts";
import { Child } from "../../bench/child.ts";
import { PlainKernel } from "../../kernels/plain.ts";
import { GarwError } from "../../wire/garw.ts";
import { SESSION_SALT as SALT } from "../vectors.ts";
import { type Rig, type RigOptions, withIntake } from "./harness.ts";

const START: StartJson = { round: 1, initiator: "lead", expected: 5, layers: [{ name: "w" }] };
const KEY = "1-lead";

const bytesOf = (values: Float32Array) => new Uint8Array(values.buffer, values.byteOffset);
const layer = (...values: number[]) => ({ values: bytesOf(Float32Array.from(values)), scale: 1 });

/** Sorts numbers, drops `trim` at either end, averages the rest, all in float64. */
function reference(columns: readonly (readonly number[])[], trim: number): Float32Array {
  return Float32Array.from(columns, (column) => {
    const kept = column.map(Math.fround).sort((a, b) => a - b).slice(trim, column.length - trim);
    return kept.reduce((sum, value) => sum + value, 0) / kept.length;
  });
}

const transpose = (rows: readonly (readonly number[])[]) =>
  rows[0]!.map((_, i) => rows.map((row) => row[i]!));

Deno.test("trimmed mean: the values of a float64 reference, whatever they and their order are", async () => {
  const value = fc.oneof(
    fc.float({ noNaN: true, noDefaultInfinity: true }),
    fc.constantFrom(0, 1, 1, -1, 2 ** -149, 3.4e38, -3.4e38),
  );
  const cases = fc.tuple(fc.integer({ min: 1, max: 12 }), fc.integer({ min: 1, max: 6 })).chain(
    ([peers, length]) =>
      fc.record({
        rows: fc.array(fc.array(value, { minLength: length, maxLength: length }), {
          minLength: peers,
          maxLength: peers,
        }),
        trim: fc.integer({ min: 0, max: Math.floor((peers - 1) / 2) }),
        turn: fc.nat(peers),
      }),
  );
  await fc.assert(fc.asyncProperty(cases, async ({ rows, trim, turn }) => {
    const expected = reference(transpose(rows), trim);
    const turned = [...rows.slice(turn), ...rows.slice(0, turn)];
    const mean = await trimmedMean(turned.map((row) => layer(...row)), trim);
    // Zeros of either sign are one value.
    assertEquals([...mean].map((v) => v || 0), [...expected].map((v) => v || 0));
  }));
});

Deno.test("trimmed mean: odd and even counts, ties, one contribution", async () => {
  const rows: [Aggregation, number[], number][] = [
    [{ kind: "median" }, [5], 5],
    [{ kind: "median" }, [5, 8], 6.5],
    [{ kind: "median" }, [9, 1, 4], 4],
    [{ kind: "median" }, [9, 1, 4, 5], 4.5],
    [{ kind: "median" }, [7, 7, 7, 1e30], 7],
    [{ kind: "trimmed", trim: 1 }, [1, 2, 4, 1e30], 3],
    [{ kind: "trimmed", trim: 2 }, [3, 3, 3, 3, -1e30], 3],
    [{ kind: "trimmed", trim: 0.2 }, [0, 1, 2, 6, 100], 3],
    // A share of which not even one comes to be left out.
    [{ kind: "trimmed", trim: 0.1 }, [0, 1, 2, 6, 91], 20],
  ];
  for (const [aggregation, column, expected] of rows) {
    const trim = trimOf(aggregation, column.length)!;
    assertEquals([...await trimmedMean(column.map((v) => layer(v)), trim)], [expected]);
  }
  assertEquals(trimOf({ kind: "trimmed", trim: 0.29 }, 100), 29);
  assertEquals(trimOf({ kind: "trimmed", trim: 3 }, 100), 3);
  assertEquals(trimOf({ kind: "mean" }, 100), undefined);
});

Deno.test("trimmed mean: many values go in slices; none and unequal ones are refused", async () => {
  const length = 100_003;
  const rows = [1, -1e30, 3, 5].map((k) =>
    layer(...Float32Array.from({ length }, (_, i) => i * k))
  );
  const mean = await trimmedMean(rows, 1);
  assertEquals(mean.length, length);
  // The coordinate 0 has four zeros.
  assert(mean.every((value, i) => value === 2 * i));
  const none = await assertRejects(() => trimmedMean([], 0));
  assertInstanceOf(none, GarwError);
  const odd = await assertRejects(() => trimmedMean([layer(1), layer(1, 2)], 0));
  assertStringIncludes((odd as Error).message, "the first one has 1 values, contribution 1 has 2");
});

Deno.test("trimmed mean: with at most k malicious of n, it stays among the honest values", async () => {
  const bad = fc.float({ noNaN: true, noDefaultInfinity: true });
  const cases = fc.integer({ min: 1, max: 4 }).chain((k) =>
    fc.record({
      malicious: fc.array(bad, { maxLength: k }),
      honest: fc.array(fc.float({ min: -1, max: 1, noNaN: true }), {
        minLength: k + 1,
        maxLength: 10,
      }),
      k: fc.constant(k),
    })
  );
  await fc.assert(fc.asyncProperty(cases, async ({ malicious, honest, k }) => {
    const column = [...malicious, ...honest];
    if (2 * k >= column.length) return;
    for (const trim of [k, trimOf({ kind: "median" }, column.length)!]) {
      if (malicious.length > trim) continue;
      const [mean] = await trimmedMean(column.map((v) => layer(v)), trim);
      const [low, high] = [Math.min(...honest), Math.max(...honest)];
      assert(mean! >= low && mean! <= high, `${mean} of ${column} is not in ${low}..${high}`);
    }
  }));
});

Deno.test("clipping: scaled to the norm in float64, rounded once, then weighted", async () => {
  const values = Float32Array.of(3e10, -4e10, 1 / 3);
  const given = (squares: number, numSamples = 2): Contribution[] => [
    { peer: `p${squares}`, cid: "", layer: "w", numSamples, squares, submittedAtMs: 0 },
  ];
  const squares = values.reduce((sum, value) => sum + value * value, 0);
  const plan = planAggregation(KEY, [given(squares), given(25)], {
    clipNorm: 5,
    aggregation: { kind: "mean" },
  });
  const scale = 5 / Math.sqrt(squares);
  assertEquals(plan.voices.map((voice) => voice.scale), [scale, 1]);
  assertEquals(plan.clipped, [{ peer: `p${squares}`, norm: Math.sqrt(squares) }]);
  const mean = await foldedMean(new PlainKernel(), [
    { values: bytesOf(values), numSamples: 2, scale },
  ]);
  assertEquals(mean, values.map((value) => Math.fround(Math.fround(value * scale) * 2) * 0.5));
});

/** Lets peers contribute one value list each, and waits for the end of the pass. */
async function pass(
  rig: Rig,
  peers: readonly { values: number[]; numSamples?: number }[],
  changes: Partial<StartJson> = {},
): Promise<{ pass: PassJson; values: number[] }> {
  await rig.client("lead").start({ ...START, expected: peers.length, ...changes });
  await Promise.all(
    peers.map(({ values, numSamples = 1 }, i) =>
      rig.client(`peer-${i}`).contribute(KEY, "w", {
        shape: [values.length],
        values: Float32Array.from(values),
        numSamples,
      })
    ),
  );
  const done = await rig.client("lead").wait(KEY, 20_000);
  return { pass: done, values: [...(await rig.client("lead").block(done.layers[0]!.cid!)).values] };
}

const robust = (aggregation: Aggregation, clipNorm?: number): RigOptions => ({
  passes: { policy: { aggregation, clipNorm } },
});

Deno.test("a pass with trimming: two malicious of seven change nothing beyond the honest range", async () => {
  await withIntake(robust({ kind: "trimmed", trim: 2 }), async (rig) => {
    const honest = [[1, -1], [2, -2], [3, -3], [4, -4], [5, -5]];
    const peers = [...honest, [1e30, 1e30], [1e30, -1e30]].map((values, i) => ({
      values,
      // Samples are claims: they give no weight.
      numSamples: i < 5 ? 10 : 1_000_000,
    }));
    const { pass: done, values } = await pass(rig, peers);
    // 3, 4, 5 are left of the first; -4, -3, -2 of the second.
    assertEquals(values, [4, -3]);
    assertEquals([done.aggregate, done.trimmed, done.clipped, done.clip_norm], [
      "trimmed",
      2,
      undefined,
      undefined,
    ]);
    assertEquals(done.num_samples, 2_000_050);
  });
});

Deno.test("a pass with the median: who has no samples has no say, unless nobody has any", async () => {
  for (const [samples, expected] of [[[1, 1, 1, 0, 0], 2], [[0, 0, 0, 0, 0], 3]] as const) {
    await withIntake(robust({ kind: "median" }), async (rig) => {
      const peers = samples.map((numSamples, i) => ({ values: [i + 1], numSamples }));
      const { pass: done, values } = await pass(rig, peers);
      assertEquals([values, done.aggregate], [[expected], "median"]);
      assertEquals(done.trimmed, samples[0] === 1 ? 1 : 2);
    });
  }
});

Deno.test("a pass with clipping: the norm is that of all layers, and the status names who", async () => {
  await withIntake(robust({ kind: "mean" }, 10), async (rig) => {
    const lead = rig.client("lead");
    await lead.start({ ...START, expected: 2, layers: [{ name: "w" }, { name: "b" }] });
    const give = async (peer: string, w: number, b: number) => {
      const block = (v: number) => ({ shape: [1], values: Float32Array.of(v), numSamples: 1 });
      await rig.client(peer).contribute(KEY, "w", block(w));
      await rig.client(peer).contribute(KEY, "b", block(b));
    };
    await give("honest", 6, 8); // A norm of exactly 10 stays.
    await give("large", 1200, 1600); // A norm of 2,000: scaled by 1/200.
    const done = await lead.wait(KEY, 20_000);
    assertEquals([done.aggregate, done.clip_norm, done.trimmed], ["mean", 10, undefined]);
    assertEquals(done.clipped, [{ peer: "large", norm: 2000 }]);
    assertEquals(done.contributions.map(({ peer, layer, norm }) => [peer, layer, norm]), [
      ["honest", "w", 6],
      ["honest", "b", 8],
      ["large", "w", 1200],
      ["large", "b", 1600],
    ]);
    const values = await Promise.all(
      done.layers.map(async ({ cid }) => [...(await lead.block(cid!)).values]),
    );
    assertEquals(values, [[6], [8]]);
  });
});

Deno.test("an overflow by one peer fails a trusting pass, and is harmless when clipped or trimmed", async () => {
  const peers = [{ values: [1] }, { values: [2] }, { values: [3e38], numSamples: 1000 }];
  await withIntake({}, async (rig) => {
    const error = await assertRejects(() => pass(rig, peers));
    assertStringIncludes((error as Error).message, "value 0 is Infinity");
  });
  await withIntake(robust({ kind: "median" }), async (rig) => {
    assertEquals((await pass(rig, peers)).values, [2]);
  });
  await withIntake(robust({ kind: "mean" }, 2), async (rig) => {
    const expected = Math.fround(2003 * Math.fround(1 / 1002));
    assertEquals((await pass(rig, peers)).values, [expected]);
  });
});

Deno.test("NaN and infinities are refused before any mean sees them", async () => {
  await withIntake(robust({ kind: "median" }, 1), async (rig) => {
    await rig.client("lead").start({ ...START, expected: 1 });
    for (const odd of [NaN, Infinity, -Infinity]) {
      const block = { shape: [2], values: Float32Array.of(1, odd), numSamples: 1 };
      const error = await assertRejects(() => rig.client("a").contribute(KEY, "w", block));
      assertEquals((error as IntakeError).code, "NonFinite");
    }
    assertEquals((await rig.client("a").read(KEY)).received, 0);
  });
});

Deno.test("a pass that trimming would leave empty is refused, or fails with the reason", async () => {
  await withIntake(robust({ kind: "trimmed", trim: 2 }), async (rig) => {
    const lead = rig.client("lead");
    const few = await assertRejects(() => lead.start({ ...START, expected: 4 }));
    assertInstanceOf(few, IntakeError);
    assertStringIncludes((few as Error).message, "leaves none of 4 contributions, at least 5");
    const quorum = await assertRejects(() => lead.start({ ...START, quorum: 3 }));
    assertStringIncludes((quorum as Error).message, "quorum is 3");
    // Enough peers, but one of them has no samples.
    const peers = [1, 1, 1, 1, 0].map((numSamples) => ({ values: [1], numSamples }));
    const error = await assertRejects(() => pass(rig, peers));
    assertStringIncludes((error as Error).message, "none of 4 contributions");
  });
});

Deno.test("a controller process trims and clips as its options say, and logs it", async () => {
  const script = new URL("../../controller.ts", import.meta.url).pathname;
  const options = ["--aggregate", "trimmed", "--trim", "0.25", "--clip-norm", "100"];
  const child = new Child({
    name: "the controller",
    command: [
      ...[Deno.execPath(), "run", "--quiet", "--no-prompt", "--allow-net=127.0.0.1"],
      ...["--allow-env=TIERFOLD_*", `--allow-read=${new URL("../../", import.meta.url).pathname}`],
      ...[script, "--world-size", "0", "--http", "127.0.0.1:0", ...options],
    ],
    env: { TIERFOLD_SALT: SALT.toHex(), NO_COLOR: "1" },
  });
  try {
    const url = `http://${await child.expect("http ", 60_000)}`;
    const client = (peer: string) =>
      new FederatedClient({ url, salt: SALT, peer, timeoutMs: 60_000 });
    await client("lead").start({ ...START, expected: 4 });
    for (const [i, value] of [1, 2, 4, 1e9].entries()) {
      const block = { shape: [1], values: Float32Array.of(value), numSamples: 1 };
      await client(`peer-${i}`).contribute(KEY, "w", block);
    }
    const done = await client("lead").wait(KEY, 60_000);
    assertEquals([done.aggregate, done.trimmed, done.clip_norm], ["trimmed", 1, 100]);
    assertEquals(done.clipped, [{ peer: "peer-3", norm: 1e9 }]);
    assertEquals([...(await client("lead").block(done.layers[0]!.cid!)).values], [3]);
    child.kill("SIGTERM");
    assertEquals(await child.finish(60_000), 143);
    assertStringIncludes(child.stderr, `the contribution of peer-3 has a norm of 1000000000`);
    assertStringIncludes(child.stderr, `trimmed, 1 of 4 values left out at either end`);
  } finally {
    child.kill("SIGKILL");
    await child.finish(60_000);
  }
});
