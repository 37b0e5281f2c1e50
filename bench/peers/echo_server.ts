/**
 * The ceiling's server: takes a model from each of R ranks and, once all are there, gives one back to
 * each. No tags, no sums, no framing; only the bytes. Loops over rounds until a rank closes.
 *
 *     deno run --allow-net=127.0.0.1 bench/peers/echo_server.ts RANKS BYTES
 *
 * @module
 */

import { readExactly, writeFully } from "./echo_io.ts";

/** Serves rounds on the connections until one of them closes. */
async function serve(connections: readonly Deno.TcpConn[], bytes: number): Promise<void> {
  const slots = connections.map(() => new Uint8Array(bytes));
  for (;;) {
    const arrived = await Promise.all(
      connections.map((connection, rank) => readExactly(connection, slots[rank] as Uint8Array)),
    );
    if (arrived.includes(false)) return;
    // Every rank gets the same bytes, as a round's result is the same for all.
    const answer = slots[0] as Uint8Array;
    await Promise.all(connections.map((connection) => writeFully(connection, answer)));
  }
}

if (import.meta.main) {
  const [ranks, bytes] = Deno.args.map(Number) as [number, number];
  const listener = Deno.listen({ hostname: "127.0.0.1", port: 0 });
  console.log(`listening ${listener.addr.hostname}:${listener.addr.port}`);
  const connections: Deno.TcpConn[] = [];
  while (connections.length < ranks) {
    const connection = await listener.accept();
    connection.setNoDelay(true);
    connections.push(connection);
  }
  listener.close();
  await serve(connections, bytes);
  for (const connection of connections) connection.close();
}
