// Strangers in great numbers: whoever belongs comes in and rounds go on.
import { assert, assertEquals } from "@std/assert";
import { Cluster } from "./cluster.ts";
import { PATIENCE_MS, pause, soon } from "./waiting.ts";

/** Opens connections that say something of no sense, or nothing, and keeps those that are let in. */
async function flood(address: string, count: number): Promise<Deno.TcpConn[]> {
  const [hostname, port] = address.split(":");
  const held: Deno.TcpConn[] = [];
  for (let i = 0; i < count; i++) {
    const connection = await Deno.connect({ hostname: hostname!, port: Number(port) });
    held.push(connection);
    const bytes = crypto.getRandomValues(new Uint8Array(i % 40));
    // Every third one is silent, and is there until somebody puts it out.
    if (i % 3 !== 0 && bytes.length > 0) await connection.write(bytes).catch(() => {});
  }
  return held;
}

Deno.test("flood: 500 strangers at relay and controller, while a rank joins and rounds go on", async () => {
  await using cluster = await Cluster.start([[0, 1]], { args: ["--max-strangers", "50"] }, {
    0: { args: ["--max-strangers", "50"] },
  });
  const first = await cluster.ranks([0]);
  const held: Deno.TcpConn[] = [];
  try {
    const floods = [
      flood(cluster.relays[0]!.address, 500),
      flood(cluster.controller.address, 500),
    ].map((flooding) => flooding.then((more) => held.push(...more)));
    const second = await cluster.ranks([1]);
    for (let round = 0; round < 10; round++) {
      await Promise.all([first.begin([[round]]), second.begin([[round + 2]])]);
      for (const rank of [first, second]) {
        assertEquals(await rank.round(), { masses: [2], values: [[round + 1]] });
      }
    }
    await soon("the floods", Promise.all(floods), 4 * PATIENCE_MS);
    // And after it.
    await Promise.all([first.begin([[1]]), second.begin([[2]])]);
    assertEquals((await first.round()).values, [[1.5]]);
    await second.round();
    for (const { child } of [cluster.controller, cluster.relays[0]!]) {
      const about = (text: string) =>
        child.stderr.split("\n").filter((line) => line.includes(text)).length;
      const closed = about("were closed before they said who they are");
      assert(closed >= 1 && closed <= 20, child.stderr);
      assert(about("a connection from ") <= 150, child.stderr);
    }
    await cluster.finish([first, second]);
  } finally {
    for (const connection of held) connection.close();
  }
});

Deno.test("flood: whoever says nothing is closed at the handshake deadline", async () => {
  const args = ["--handshake-deadline", "300ms"];
  await using cluster = await Cluster.start([[0]], { args }, { 0: { args } });
  for (const server of [cluster.controller, cluster.relays[0]!]) {
    const [hostname, port] = server.address.split(":");
    for (const said of [new Uint8Array(0), Uint8Array.of(0xc0)]) {
      const stranger = await Deno.connect({ hostname: hostname!, port: Number(port) });
      if (said.length > 0) await stranger.write(said);
      assertEquals(await soon("the end", stranger.read(new Uint8Array(64))), null);
      stranger.close();
    }
    await server.logged("took longer than 300 ms");
  }
  const rank = await cluster.ranks([0]);
  await pause(500);
  await rank.begin([[4]]);
  assertEquals((await rank.round()).values, [[4]]);
  await cluster.finish([rank]);
});
