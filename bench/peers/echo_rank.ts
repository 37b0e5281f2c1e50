/**
 * One rank of the ceiling: sends a model to the echo server, waits for one back, in rounds.
 *
 *     deno run --allow-all bench/peers/echo_rank.ts HOST:PORT
 *
 * Speaks the lines of bench/worker_lines.ts.
 *
 * @module
 */

import { splitAddress } from "../address.ts";
import { driveRounds } from "../worker_lines.ts";
import { readExactly, writeFully } from "./echo_io.ts";

if (import.meta.main) {
  const connection = await Deno.connect(splitAddress(Deno.args[0] ?? ""));
  connection.setNoDelay(true);
  await driveRounds((bytes) => {
    const model = new Uint8Array(bytes).fill(0x3f);
    const answer = new Uint8Array(bytes);
    return async () => {
      const start = performance.now();
      await writeFully(connection, model);
      if (!await readExactly(connection, answer)) throw new Error("echo: the server closed");
      return [performance.now() - start];
    };
  });
  connection.close();
}
