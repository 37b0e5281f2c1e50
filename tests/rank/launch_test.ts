import { assertEquals, assertRejects, assertStringIncludes, assertThrows } from "@std/assert";
import { launchPlace, RankClient } from "../../mod.ts";
import { Session } from "../cluster/session.ts";
import { SESSION_SALT as SALT } from "../vectors.ts";
import file from "./launch_cases.json" with { type: "json" };

interface Case {
  readonly name: string;
  readonly env: Readonly<Record<string, string>>;
  readonly known?: { rank?: number; worldSize?: number };
  readonly place?: Readonly<Record<string, unknown>>;
  readonly source?: readonly string[];
  readonly error?: readonly string[];
}

for (const { name, env, known, place, source: texts = [], error } of file.cases as Case[]) {
  Deno.test(`launch: ${name}`, () => {
    const find = () => launchPlace(known, (variable) => env[variable]);
    if (error !== undefined) {
      const { message } = assertThrows(find, RangeError) as Error;
      for (const text of error) assertStringIncludes(message, text);
      return;
    }
    const { source, ...found } = find();
    assertEquals(found, place);
    for (const text of texts) assertStringIncludes(source, text);
  });
}

Deno.test("launch: a client finds its place and its relay in the environment, and logs who said so", async () => {
  await using session = await Session.start({ hosts: [[0, 1]] });
  const other = await session.rank(0);
  const env = { RANK: "1", WORLD_SIZE: "2", TIERFOLD_RELAY: session.relayOf(1) };
  for (const [name, value] of Object.entries(env)) Deno.env.set(name, value);
  try {
    await using client = await RankClient.connect({ salt: SALT });
    assertEquals([client.rank, client.worldSize], [1, 2]);
    await session.log.has("the place of this rank", "rank 1 by RANK (torchrun)");
    const data = [Float32Array.of(1), Float32Array.of(3)];
    await Promise.all([
      other.allReduce([data[0]!], { mass: 1 }),
      client.allReduce([data[1]!], { mass: 1 }),
    ]);
    assertEquals(data, [Float32Array.of(2), Float32Array.of(2)]);
  } finally {
    for (const name of Object.keys(env)) Deno.env.delete(name);
  }
});

Deno.test("launch: without a relay, a client says what is missing", async () => {
  const error = await assertRejects(
    () => RankClient.connect({ salt: SALT, rank: 0, worldSize: 1 }),
    RangeError,
    "nobody names the relay of this host",
  ) as Error;
  assertStringIncludes(error.message, "TIERFOLD_RELAY");
});

Deno.test("launch: without permission nothing is seen, and nobody is asked", async () => {
  const child = new Deno.Command(Deno.execPath(), {
    args: ["run", "--quiet", "--no-prompt", "-"],
    env: { RANK: "0", WORLD_SIZE: "1" },
    stdin: "piped",
    stdout: "piped",
  }).spawn();
  const input = child.stdin.getWriter();
  await input.write(new TextEncoder().encode(
    `import { launchPlace } from "${new URL("../../mod.ts", import.meta.url)}";
     try { launchPlace(); } catch (error) { console.log(error.message); }`,
  ));
  await input.close();
  const { stdout } = await child.output();
  const text = new TextDecoder().decode(stdout);
  assertStringIncludes(text, "neither rank nor world size");
  assertStringIncludes(text, "--allow-env");
});
