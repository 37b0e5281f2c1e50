// A whole cluster of built programs, run where nothing of the sources is.
import { assertEquals } from "@std/assert";
import { Child } from "../../bench/child.ts";
import { DeltaListener } from "../../delta/listener.ts";
import { RankClient } from "../../rank/client.ts";
import { NO_ORT } from "../../scripts/bundle.ts";
import { RING } from "../delta/fragments.ts";
import { soon } from "../cluster/waiting.ts";
import { hex, SESSION_SALT as SALT } from "../vectors.ts";

const START_MS = 60_000;

/** How the two programs are started: program and arguments before their options. */
export interface Commands {
  readonly controller: readonly string[];
  readonly relay: readonly string[];
}

/** Floats of a tensor that is large enough for hashing threads. */
const LARGE = 100_000;

/**
 * Two ranks average over them, with hashing threads, a replica that follows by deltas, and a relay that is
 * asked for a kernel which it has not.
 *
 * @param folder Where the programs run.
 */
export async function averagesOver(commands: Commands, folder: string): Promise<void> {
  const start = (name: "controller" | "relay", args: string[], env: Record<string, string> = {}) =>
    new Child({
      name,
      command: [...commands[name], "--listen", "127.0.0.1:0", "--world-size", "2", ...args],
      cwd: folder,
      env: { TIERFOLD_SALT: hex(SALT), NO_COLOR: "1", ...env },
    });
  const caughtUp = Promise.withResolvers<number | undefined>();
  const replica = DeltaListener.listen({
    listen: { hostname: "127.0.0.1", port: 0 },
    ring: RING,
    onRound: (_, layers) => {
      if (layers[0]!.values[0] === 4) caughtUp.resolve(layers[0]!.values.at(-1));
    },
  });
  const children: Child[] = [];
  try {
    const controller = start("controller", ["--workers", "1", "--http", "127.0.0.1:0"], {
      AXIOM_DWE_PEERS: `127.0.0.1:${replica.address.port}`,
      AXIOM_FLEET_KEY: "fleet-secret\n",
    });
    children.push(controller);
    const http = await controller.expect("http ", START_MS);
    const root = await controller.expect("listening ", START_MS);
    const relay = start("relay", [
      ...["--host", "h", "--ranks", "0-1", "--controller", root, "--workers", "1"],
      ...["--kernel", "ort-wasm"],
    ]);
    children.push(relay);
    const address = await relay.expect("listening ", START_MS);
    const clients = await Promise.all(
      [0, 1].map((rank) => RankClient.connect({ relay: address, rank, worldSize: 2, salt: SALT })),
    );
    for (let round = 1; round <= 2; round++) {
      const tensors = [1, 3].map((value) => new Float32Array(LARGE).fill(value * round));
      const results = await Promise.all(
        clients.map((client, rank) => client.allReduce([tensors[rank]!], { mass: 1 })),
      );
      assertEquals(results.map(({ mass }) => mass), [2, 2]);
      for (const tensor of tensors) {
        assertEquals([tensor[0], tensor.at(-1)], [2 * round, 2 * round]);
      }
    }
    assertEquals(await soon("the replica has caught up", caughtUp.promise, START_MS), 4);
    // The status page is inside, with what it loads.
    for (const path of ["/", "/page/page.js", "/page/uplot.js"]) {
      const response = await fetch(`http://${http}${path}`);
      assertEquals([response.status, (await response.text()).length > 100], [200, true], path);
    }
    for (const client of clients) await client.close();
    for (const child of children) assertEquals(await child.finish(30_000), 0, child.stderr);
    const why = `ort-wasm is not used, simd sums instead: ${NO_ORT}`;
    assertEquals(relay.stderr.includes(why), true, relay.stderr);
  } finally {
    for (const child of children) child.kill("SIGKILL");
    for (const child of children) await child.finish();
    await replica.close();
  }
}
