// Real processes: a controller with deltas and an intake, a relay, ranks, and replicas that follow.
import { assert, assertEquals } from "@std/assert";
import { Child } from "../../bench/child.ts";
import { FederatedClient } from "../../controller/passes/client.ts";
import { signedHeaders } from "../../controller/passes/auth.ts";
import { deltasSchema } from "../../controller/passes/schemas.ts";
import { DeltaListener } from "../../delta/listener.ts";
import { RankClient } from "../../rank/client.ts";
import { hex, SESSION_SALT as SALT } from "../vectors.ts";
import { RING } from "./fragments.ts";
import { freePort, until } from "./sockets.ts";

const START_MS = 30_000;
const ROOT = new URL("../../", import.meta.url).pathname;

/** Starts controller.ts or relay.ts, with the permissions that the documentation names. */
function server(
  script: string,
  args: string[],
  env: Record<string, string> = {},
  permissions: string[] = [],
): Child {
  return new Child({
    name: script,
    command: [
      ...[Deno.execPath(), "run", "--quiet", "--no-prompt", "--allow-net=127.0.0.1"],
      ...[`--allow-read=${ROOT}`, "--allow-env=TIERFOLD_*,AXIOM_*", ...permissions],
      ...[`${ROOT}${script}`, "--listen", "127.0.0.1:0", ...args],
    ],
    env: { TIERFOLD_SALT: hex(SALT), NO_COLOR: "1", ...env },
  });
}

interface Running {
  url: string;
  relay: string;
  replicaPort: number;
  replica(): DeltaListener;
}

/** A controller for two ranks with everything on, and one relay. */
async function withCluster(
  args: string[],
  permissions: string[],
  test: (running: Running) => Promise<void>,
): Promise<void> {
  const replicaPort = freePort();
  const children: Child[] = [];
  const replicas: DeltaListener[] = [];
  try {
    const controller = server(
      "controller.ts",
      ["--world-size", "2", "--http", "127.0.0.1:0", ...args],
      { AXIOM_DWE_PEERS: `127.0.0.1:${replicaPort}`, AXIOM_FLEET_KEY: "fleet-secret\n" },
      permissions,
    );
    children.push(controller);
    const http = await controller.expect("http ", START_MS);
    const address = await controller.expect("listening ", START_MS);
    const relay = server("relay.ts", [
      ...["--host", "h", "--ranks", "0-1", "--world-size", "2", "--controller", address],
    ]);
    children.push(relay);
    await test({
      url: `http://${http}`,
      relay: await relay.expect("listening ", START_MS),
      replicaPort,
      replica: () => {
        const listener = DeltaListener.listen({
          listen: { hostname: "127.0.0.1", port: replicaPort },
          ring: RING,
        });
        replicas.push(listener);
        return listener;
      },
    });
    for (const child of children) assertEquals(await child.finish(15_000), 0, child.stderr);
  } finally {
    for (const child of children) child.kill("SIGKILL");
    await Promise.all(replicas.map((replica) => replica.close()));
  }
}

/** Two ranks of the cluster, which average until `rounds` is over. */
async function ranks(relay: string): Promise<RankClient[]> {
  return await Promise.all(
    [0, 1].map((rank) => RankClient.connect({ relay, rank, worldSize: 2, salt: SALT })),
  );
}

Deno.test("a replica holds what the ranks agreed on, but for one rounding, late or not", async () => {
  await withCluster([], [], async ({ relay, replica, url }) => {
    const clients = await ranks(relay);
    const tensors = clients.map((_, rank) => [
      { name: "w", shape: [300, 1_000], data: new Float32Array(300_000) },
      { name: "b", shape: [], data: Float32Array.of(rank) },
    ]);
    const train = async (rounds: number) => {
      for (let round = 0; round < rounds; round++) {
        for (const [rank, [w]] of tensors.entries()) {
          w!.data.forEach((value, i) => w!.data[i] = value + Math.sin(i + rank + round) / 100);
        }
        await Promise.all(
          clients.map((client, rank) => client.allReduce(tensors[rank]!, { mass: 1 + rank })),
        );
        // Counts and other Control rounds are not weights.
        await Promise.all(clients.map((client) => client.gatherCounts(round)));
      }
    };
    await train(3);
    const late = replica();
    await late.ready;
    await train(10);
    const path = "/v1/deltas";
    const read = async () => {
      const headers = signedHeaders({ method: "GET", path }, SALT);
      return deltasSchema.parse(await (await fetch(url + path, { headers })).json());
    };
    // Rounds may be told together when they come faster than they are published; the last one counts.
    // A weight that changed its sign or its size is what it was plus a rounded change: off by a rounding.
    const consensus = tensors[0]![0]!.data;
    await until(
      () => late.layers[0]!.values.every((w, i) => Math.abs(w - consensus[i]!) <= 2 ** -26),
      "the replica has the last consensus",
    );
    const equal = consensus.filter((w, i) => w === late.layers[0]!.values[i]).length;
    assert(equal > 0.9 * consensus.length, `only ${equal} weights are the very same`);
    assertEquals(late.layers.map(({ shape }) => shape), [[300, 1_000], []]);
    assertEquals(late.layers[1]!.values, tensors[0]![1]!.data);
    await until(
      async () => (await read()).version === late.version!.version,
      "the telemetry is here",
    );
    const { peers, telemetry } = await read();
    assertEquals([peers[0]!.replica, peers[0]!.dropped, telemetry.rejected], [true, 0, 0]);
    assert(telemetry.sent > 0 && telemetry.last_session!.startsWith("tierfold-1:"));
    for (const client of clients) await client.close();
  });
});

Deno.test("a consensus of passes is followed too, and lives beside the rounds", async () => {
  const directory = await Deno.makeTempDir();
  try {
    const permissions = [`--allow-read=${directory}`, `--allow-write=${directory}`];
    await withCluster(["--passes-store", directory], permissions, async (running) => {
      const { relay, replica, url } = running;
      const follower = replica();
      const clients = await ranks(relay);
      const peers = ["a", "b", "c"].map((peer) => new FederatedClient({ url, salt: SALT, peer }));
      for (let round = 1; round <= 3; round++) {
        await peers[0]!.start({
          round,
          initiator: "test",
          expected: 3,
          layers: [{ name: "w", shape: [2, 2] }],
          consensus: true,
        });
        const key = `${round}-test`;
        const [, pass] = await Promise.all([
          Promise.all(
            clients.map((client, rank) =>
              client.allReduce([Float32Array.of(rank, round)], { mass: 1 })
            ),
          ),
          Promise.all(peers.map(async (peer, i) => {
            const values = Float32Array.of(i, round, i * round, -i);
            await peer.contribute(key, "w", { shape: [2, 2], values, numSamples: i + 1 });
            return await peer.wait(key, 10_000);
          })),
        ]);
        const { values } = await peers[0]!.block(pass[0]!.layers[0]!.cid!);
        await until(() => {
          const live = follower.layers.find(({ shape }) => shape.length === 2);
          return live?.values.every((value, i) => value === values[i]) === true;
        }, "the replica has the pass's result");
      }
      // The ranks' tensors and the passes' layers are followed side by side.
      await until(() => follower.layers.length === 2, "both are there");
      const ranksLayer = follower.layers.find(({ shape }) => shape.length === 1)!;
      await until(() => ranksLayer.values[1] === 3, "the last round is there");
      for (const client of clients) await client.close();
    });
    const names = (await Array.fromAsync(Deno.readDir(directory))).map(({ name }) => name);
    assert(names.length > 0 && names.every((name) => name.endsWith(".garw")), names.join());
  } finally {
    await Deno.remove(directory, { recursive: true });
  }
});

Deno.test("a controller for passes alone runs until it is told to stop", async () => {
  const controller = server("controller.ts", ["--world-size", "0", "--http", "127.0.0.1:0"]);
  try {
    const url = `http://${await controller.expect("http ", START_MS)}`;
    await controller.expect("listening ", START_MS);
    const client = new FederatedClient({ url, salt: SALT, peer: "a" });
    await client.start({ round: 1, initiator: "a", expected: 1, layers: [{ name: "w" }] });
    const block = { shape: [1], values: Float32Array.of(7), numSamples: 3 };
    const { cid } = await client.contribute("1-a", "w", block);
    assertEquals((await client.wait("1-a", 5_000)).layers[0]!.cid, cid);
    controller.kill("SIGTERM");
    assertEquals(await controller.finish(10_000), 143);
  } finally {
    controller.kill("SIGKILL");
  }
});

Deno.test("without the permission that the publisher needs, the controller says which", async () => {
  const child = new Child({
    name: "controller",
    command: [
      ...[Deno.execPath(), "run", "--quiet", "--no-prompt", "--allow-net=127.0.0.1"],
      ...["--allow-env=TIERFOLD_*,AXIOM_*", `${ROOT}controller.ts`, "--world-size", "1"],
    ],
    env: { TIERFOLD_SALT: hex(SALT), AXIOM_DWE_PEERS: "127.0.0.1:9", AXIOM_FLEET_KEY: "k" },
  });
  assertEquals(await child.finish(START_MS), 1);
  assert(child.stderr.includes(`--allow-read=${ROOT}`), child.stderr);
});
