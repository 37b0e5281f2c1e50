// Hostile servers: a relay that says something wrong to a rank, and a controller that does to a relay. Who
// hears it ends with an error that names the other end, or goes on with exact results; nothing else
// happens, and nothing is left open.
//
//     TIERFOLD_FUZZ_SEED=N deno test -A tests/fuzz/servers_test.ts     replays one
import { assert, assertEquals, AssertionError } from "@std/assert";
import * as fc from "fast-check";
import { startLogging } from "../../cli/log.ts";
import { SimdKernel } from "../../kernels/simd.ts";
import { RankClient } from "../../rank/client.ts";
import { Relay } from "../../relay/server.ts";
import { TransportError } from "../../transport/connection.ts";
import { type Address, formatAddress } from "../../transport/tcp.ts";
import { WireError } from "../../wire/errors.ts";
import { soon } from "../cluster/waiting.ts";
import { SESSION_SALT as SALT } from "../vectors.ts";
import { type Attack, attacks, say } from "./attack.ts";
import {
  changed,
  controllerAnswers,
  type Conversation,
  type Leg,
  relayAnswers,
  VALUES,
} from "./conversation.ts";

const COUNT = Number(Deno.env.get("TIERFOLD_FUZZ_SERVERS") ?? 40);
const SEED = Deno.env.get("TIERFOLD_FUZZ_SEED");
const ROUNDS = 3;
/** How many at a time. */
const TOGETHER = 8;
const RANK = 3;
const WORLD = 5;
const LOOPBACK: Address = { hostname: "127.0.0.1", port: 0 };

const drawn = (seed: number): Attack => fc.sample(attacks, { seed, numRuns: 1 })[0]![0]!;

/** Runs `one` for every seed, and says which of them failed. */
async function overSeeds(one: (seed: number) => Promise<boolean>): Promise<void> {
  const first = SEED === undefined
    ? crypto.getRandomValues(new Uint32Array(1))[0]! >>> 1
    : Number(SEED);
  const seeds = Array.from({ length: SEED === undefined ? COUNT : 1 }, (_, i) => first + i);
  console.log(`fuzz: seeds ${seeds[0]} to ${seeds.at(-1)}`);
  let well = 0;
  while (seeds.length > 0) {
    await Promise.all(
      seeds.splice(0, TOGETHER).map(async (seed) => {
        try {
          if (await one(seed)) well++;
        } catch (error) {
          throw new AssertionError(
            `seed ${seed}: ${error instanceof Error ? error.stack : error}\nreplay it with\n` +
              `    TIERFOLD_FUZZ_SEED=${seed} deno test -A tests/fuzz/servers_test.ts`,
            { cause: error },
          );
        }
      }),
    );
  }
  if (SEED === undefined) {
    assert(well > 0 && well < COUNT, `${well} of ${COUNT} went well: changes change nothing`);
  }
}

/** Listens for one connection and says to it what a seed makes of a conversation. */
function hostile(
  seed: number,
  leg: Leg,
  conversation: Conversation,
): { address: Address; said: Promise<boolean>; close: () => void } {
  const attack = drawn(seed);
  const messages = changed(leg, conversation, attack.changes, [conversation], seed % 2 === 1);
  const listener = Deno.listen(LOOPBACK as { hostname: string; port: number });
  let open = true;
  const close = () => {
    if (open) listener.close();
    open = false;
  };
  // One only: who comes back finds nobody.
  const said = listener.accept().then((conn) => {
    close();
    return say(conn, messages, attack);
  }, () => false);
  return { address: { hostname: "127.0.0.1", port: listener.addr.port }, said, close };
}

/**
 * Some rounds of one rank, each of which must be exact where nothing was signed anew.
 *
 * @returns Whether all of them went well.
 */
async function rounds(relay: string, exact: boolean): Promise<boolean> {
  let client: RankClient | undefined;
  try {
    client = await RankClient.connect({
      relay,
      rank: RANK,
      worldSize: WORLD,
      salt: SALT,
      joinTimeoutMs: 5_000,
      roundTimeoutMs: 10_000,
    });
    for (let round = 0; round < ROUNDS; round++) {
      const data = new Float32Array(VALUES).fill(2 ** RANK);
      const { mass } = await client.allReduce([data], { kind: "control", mass: 1 });
      if (!exact) continue;
      assertEquals([...data], new Array(VALUES).fill(2 ** RANK));
      assertEquals(mass, 1);
    }
    return true;
  } catch (error) {
    if (!(error instanceof WireError || error instanceof TransportError)) throw error;
    return false;
  } finally {
    await client?.close();
  }
}

Deno.test("fuzz: ranks with hostile relays", async () => {
  const conversation = relayAnswers(RANK, ROUNDS);
  await overSeeds(async (seed) => {
    const server = hostile(seed, "rank", conversation);
    try {
      return await soon(
        "the rank's end",
        rounds(formatAddress(server.address), seed % 2 === 0),
        30_000,
      );
    } finally {
      server.close();
      await soon("the relay's end", server.said);
    }
  });
});

Deno.test("fuzz: relays with hostile controllers", async () => {
  using _ = startLogging({ format: "human", level: "fatal" }, { write: () => {} });
  const conversation = controllerAnswers("a host", RANK, ROUNDS);
  await overSeeds(async (seed) => {
    const server = hostile(seed, "relay", conversation);
    const listening = Promise.withResolvers<Address>();
    const stop = new AbortController();
    const relay = Relay.run({
      host: "a host",
      ranks: [RANK],
      worldSize: WORLD,
      listen: LOOPBACK,
      controller: server.address,
      salt: SALT,
      frameCeilingBytes: 1024 ** 2,
      workers: 0,
      connectDeadlineMs: 5_000,
      reconnectDeadlineMs: 100,
      joinDeadlineMs: 20_000,
      roundDeadlineMs: 20_000,
      kernel: (arena) => Promise.resolve(SimdKernel.create(arena)),
      onListening: listening.resolve,
    }, stop.signal).then(() => undefined, (error: unknown) => error);
    try {
      const address = await soon("the relay listens", listening.promise);
      const well = await soon(
        "the rank's end",
        rounds(formatAddress(address), seed % 2 === 0),
        30_000,
      );
      stop.abort(new TransportError("ended", "stopped by the test"));
      const error = await soon("the relay's end", relay);
      if (error !== undefined) {
        assert(error instanceof WireError || error instanceof TransportError, `${error}`);
      }
      return well;
    } finally {
      stop.abort();
      server.close();
      await soon("the controller's end", server.said);
      await soon("the relay's end", relay);
    }
  });
});
