// The federated demo end to end, small; and the replica on its own.
import { assert, assertEquals, assertMatch } from "@std/assert";
import { Child } from "../../bench/child.ts";
import { DeltaPublisher } from "../../controller/delta/publisher.ts";
import { loadDigits, PIXELS, split } from "../../examples/digits/data.ts";
import { guess, misfit } from "../../examples/digits/forward.ts";
import { DigitsModel } from "../../examples/digits/model.ts";
import { layoutFrame } from "../../wire/round_frame.ts";
import { until } from "../delta/sockets.ts";
import { alive, CAN_LIST, descendants } from "./descendants.ts";

const FILE = (path: string) => new URL(`../../${path}`, import.meta.url).pathname;

Deno.test("demo:federated: clients learn, malice is refused, the replica answers as the consensus", async () => {
  const { code, stdout, stderr } = await new Deno.Command(Deno.execPath(), {
    args: [
      ...["run", "--allow-run", FILE("examples/federated.ts")],
      ...["--clients", "6", "--rounds", "2", "--wait", "5"],
    ],
    env: { NO_COLOR: "1" },
  }).output();
  const text = new TextDecoder().decode(stdout);
  assertEquals(code, 0, text + new TextDecoder().decode(stderr));
  const rounds = [...text.matchAll(/^ +\d+ +(\d+\.\d) % +(\d+\.\d) % +(\d+) +(\d+)/gm)];
  assert(rounds.length >= 1, text);
  for (const [, consensus, replica, clients] of rounds) {
    assert(Math.abs(Number(consensus) - Number(replica)) < 0.5, text);
    // Neither the malicious one nor, in the end, the one that vanished.
    assert(Number(clients) >= 3 && Number(clients) <= 5, text);
  }
  assert(Number(rounds.at(-1)![1]) > 25, `no better than by chance:\n${text}`);
  assertMatch(text, /; 0 attempts came through/);
  assertMatch(text, /vanishes in the middle of an upload/);
});

Deno.test({
  name: `demo:federated: SIGTERM ends every process of it${CAN_LIST ? "" : " (skipped: no /proc)"}`,
  ignore: !CAN_LIST,
  fn: endsWithEverything,
});

async function endsWithEverything(): Promise<void> {
  const child = new Child({
    name: "the federated demo",
    command: [
      Deno.execPath(),
      "run",
      "--allow-run",
      FILE("examples/federated.ts"),
      "--clients",
      "6",
    ],
    env: { NO_COLOR: "1" },
  });
  await child.expect("  round  consensus", 60_000);
  // Controller, replica, three farms of clients, the malicious and the vanishing one.
  await until(() => descendants(child.pid).length >= 7, "all processes run");
  const members = descendants(child.pid);
  child.kill("SIGTERM");
  assertEquals(await child.finish(10_000), 143);
  assertEquals(alive(members), []);
}

Deno.test("the digits network forward, without TensorFlow.js, gives its answers", async () => {
  const { heldOut } = split(await loadDigits(), 2, 1);
  const model = await DigitsModel.create(1, 0.1);
  const layers = model.parameters.map(({ shape, data }) => ({ shape, values: data }));
  assertEquals(misfit(layers), undefined);
  const right = guess(layers, heldOut.pixels)
    .filter(({ digit, probability }, i) => {
      assert(probability >= 0.1 && probability <= 1);
      return digit === heldOut.labels[i];
    }).length;
  assert(Math.abs(right / heldOut.labels.length - model.accuracy(heldOut)) < 0.001);
  assertMatch(misfit(layers.slice(1))!, /expected tensors of shapes \[784, /);
});

Deno.test("a replica process answers with live weights, and says what is wrong with a question", async () => {
  const child = new Child({
    name: "the replica",
    command: [
      ...[Deno.execPath(), "run", "--quiet", "--no-prompt", "--allow-net=127.0.0.1"],
      ...["--allow-env=AXIOM_*", FILE("examples/replica.ts")],
    ],
    env: { AXIOM_FLEET_KEY: "k", NO_COLOR: "1" },
  });
  let publisher: DeltaPublisher | undefined;
  try {
    const url = `http://${await child.expect("http ", 30_000)}`;
    const peer = await child.expect("listening ", 30_000);
    const ask = async (body: BodyInit, type: string) => {
      const headers = { "content-type": type };
      const response = await fetch(`${url}/predict`, { method: "POST", body, headers });
      return { status: response.status, value: await response.json() };
    };
    const digit = JSON.stringify({ pixels: new Array(PIXELS).fill(0.5) });
    assertEquals((await ask(digit, "application/json")).status, 503);
    publisher = DeltaPublisher.start({
      peers: [peer],
      keys: { current: { text: "k" }, previous: {} },
      snapshots: true,
    });
    const shapes = [[PIXELS, 2], [2], [2, 10], [10]];
    const layout = layoutFrame(shapes.map((shape) => ({ dtype: 0, shape })));
    const memory = new Uint8Array(layout.length);
    const bias = new Float32Array(10);
    const status = async () => await (await fetch(`${url}/status`)).json();
    for (const [i, favourite] of [3, 8].entries()) {
      bias.fill(0)[favourite] = 5;
      memory.set(new Uint8Array(bias.buffer), layout.tensors[3]!.at);
      publisher.offer({ kind: "model", mass: 1, memory, tensors: layout.tensors });
      await until(async () => (await status()).version === i + 1, "the version is there");
      const { value } = await ask(digit, "application/json");
      assertEquals([value.version, value.guesses[0].digit], [i + 1, favourite]);
    }
    assertEquals((await status()).shapes, shapes);
    const two = await ask(new Float32Array(2 * PIXELS), "application/octet-stream");
    assertEquals(two.value.guesses.length, 2);
    for (
      const bad of [
        "{",
        "{}",
        JSON.stringify({ pixels: [1] }),
        JSON.stringify({ pixels: new Array(PIXELS).fill("x") }),
      ]
    ) assertEquals((await ask(bad, "application/json")).status, 400, bad);
    assertEquals((await ask(new Uint8Array(9_000_000), "application/octet-stream")).status, 400);
    const nothing = await fetch(`${url}/elsewhere`);
    assertEquals(nothing.status, 404);
    await nothing.body?.cancel();
    child.kill("SIGTERM");
    assertEquals(await child.finish(10_000), 0);
  } finally {
    await publisher?.close(0);
    child.kill("SIGKILL");
  }
});
