// Whole recorded connections, played again: refused where both ends seal their channel.
import { assertEquals } from "@std/assert";
import { type Network, tcp } from "../../transport/network.ts";
import { TERMS } from "../../serve/terms.ts";
import { frameOf, RawChannel, RawController, RawPeer } from "./raw.ts";
import { average, Session } from "./session.ts";
import { failure, soon } from "./waiting.ts";

/** TCP that keeps what went up and down on every connection it made. */
function recorder(): Network & { up: number[]; down: number[] } {
  const tape = { up: [] as number[], down: [] as number[] };
  return {
    ...tcp,
    ...tape,
    connect: async (...args) => {
      const connection = await tcp.connect(...args);
      const { read, write } = connection;
      connection.read = async (into) => {
        const count = await read.call(connection, into);
        tape.down.push(...into.subarray(0, count ?? 0));
        return count;
      };
      connection.write = async (bytes) => {
        const count = await write.call(connection, bytes);
        tape.up.push(...bytes.subarray(0, count));
        return count;
      };
      return connection;
    },
  };
}

/** A session of two hosts in which rank 0's host has made two rounds and left, and what was recorded. */
async function recorded(): Promise<{ session: Session; up: Uint8Array; down: Uint8Array }> {
  const network = recorder();
  const session = await Session.start({
    hosts: [[0], [1]],
    relays: { 0: { controllerNetwork: network } },
  });
  const ranks = await session.ranks();
  for (let round = 0; round < 2; round++) {
    await average(ranks, [Float32Array.of(2), Float32Array.of(4)], [1, 1]);
  }
  await ranks[0]!.close();
  await soon("the relay ends", session.relays[0]!.outcome);
  return { session, up: Uint8Array.from(network.up), down: Uint8Array.from(network.down) };
}

Deno.test("replay: a relay's recorded connection is refused by its controller", async () => {
  const { session, up } = await recorded();
  await using _ = session;
  using stranger = await RawPeer.connect(session.controller.address);
  await stranger.write(up);
  const answer = await stranger.rest();
  const text = new TextDecoder().decode(answer);
  assertEquals(text.includes("checking a seal"), true, text);
  await session.log.has("a connection from", "checking a seal");
  // It has taken nobody's place: rank 1 goes on alone, and rank 0's host may come back.
  const back = await session.startRelay(0);
  await session.log.has("carries ranks 0");
  back.stop();
  await back.outcome.catch(() => {});
});

Deno.test("replay: a controller's recorded answers are refused by a relay", async () => {
  const { session, down } = await recorded();
  await session[Symbol.asyncDispose]();
  using controller = new RawController();
  await using victim = await Session.start({
    hosts: [[0]],
    relays: { 0: { controller: controller.address } },
  });
  const ended = failure("the relay", victim.relays[0]!.outcome, "checking a seal");
  const { channel } = await controller.accept(false);
  await channel.write(down);
  await ended;
  channel.close();
});

Deno.test("replay: peers without nonces are taken where they are not required", async () => {
  await using open = await Session.start({ hosts: [[0]], later: [0] });
  using plain = await RawChannel.join(open.controller.address, "plain", [0]);
  plain.close();
});

Deno.test("replay: a sealed relay and a plain one are in the same rounds", async () => {
  for (const length of [3, 700_000]) {
    await using session = await Session.start({ hosts: [[0], [1]], later: [1] });
    const rank = await session.rank(0);
    using plain = await RawChannel.join(session.controller.address, "plain", [1]);
    for (let round = 0; round < 2; round++) {
      const values = new Float32Array(length).fill(2);
      const averaged = average([rank], [values], [1]);
      await plain.sendFrame("host_frame", frameOf([new Array(length).fill(6)], { weight: 3 }));
      const { header, values: theirs } = await plain.expectFrame("broadcast");
      assertEquals(await averaged, [4]);
      assertEquals([header.weight, theirs[0]![0], values.at(-1)], [4, 2, 2]);
    }
    await plain.sendControl({ type: "rank_exit", rank: 1 });
    await session.finish();
  }
});

const terms = { ...TERMS, requireNonce: true };

Deno.test("replay: with --require-nonce a controller refuses a plain relay", async () => {
  await using strict = await Session.start({
    hosts: [[0]],
    controller: { terms },
    relays: { 0: { terms } },
  });
  using odd = await RawChannel.hello(strict.controller.address, "plain", [0]);
  const reason = await odd.refusal();
  assertEquals(reason.includes("does not seal its channel, which --require-nonce asks for"), true);
  const rank = await strict.rank(0, { seal: true });
  assertEquals(await average([rank], [Float32Array.of(3)], [2]), [2]);
  await strict.finish();
});

Deno.test("replay: with --require-nonce a relay refuses a plain controller", async () => {
  using controller = new RawController();
  await using victim = await Session.start({
    hosts: [[0]],
    relays: { 0: { terms, controller: controller.address } },
  });
  const ended = failure("the relay", victim.relays[0]!.outcome, "does not seal its channels");
  const { channel } = await controller.accept();
  await ended;
  channel.close();
});

// The same between rank and relay, where the rank asks for it.

Deno.test("replay: sealed ranks average with plain ones, in every form", async () => {
  for (const length of [3, 40_000, 700_000]) {
    await using session = await Session.start({ hosts: [[0, 1], [2]] });
    const ranks = await Promise.all([
      session.rank(0, { seal: true, wire: "bf16" }),
      session.rank(1, { seal: true, wire: "bf16" }),
      session.rank(2),
    ]);
    for (let round = 0; round < 3; round++) {
      const values = [1, 2, 6].map((value) => new Float32Array(length).fill(value));
      assertEquals(await average(ranks, values, [1, 1, 1]), [3, 3, 3]);
      assertEquals(values.map((one) => one.at(-1)), [3, 3, 3]);
    }
    const mine = new Float32Array(length);
    await ranks[1]!.close();
    await session.log.has("rank 1 left");
    const back = await session.rank(1, { seal: true, catchUp: [mine] });
    assertEquals([back.consensus, mine.at(-1)], [{ rounds: 3, mass: 3 }, 3]);
    await session.finish();
  }
});

Deno.test("replay: a rank's recorded connection is refused, and takes nobody's place", async () => {
  await using session = await Session.start({ hosts: [[0, 1]] });
  const network = recorder();
  const first = await session.rank(0, { seal: true, network });
  const other = await session.rank(1);
  await average([first, other], [Float32Array.of(2), Float32Array.of(4)], [1, 1]);
  await first.close();
  await session.log.has("rank 0 left");
  using stranger = await RawPeer.connect(session.relayOf(0));
  await stranger.write(Uint8Array.from(network.up));
  const text = new TextDecoder().decode(await stranger.rest());
  assertEquals(text.includes("the connection is a recorded one"), true, text);
  const values = Float32Array.of(5);
  assertEquals(await average([other], [values], [1]), [1]);
  const back = await session.rank(0, { seal: true });
  assertEquals(
    await average([back, other], [Float32Array.of(2), Float32Array.of(4)], [1, 1]),
    [2, 2],
  );
  await session.finish();
});

Deno.test("replay: a relay's recorded answers are refused by a rank", async () => {
  const network = recorder();
  {
    await using session = await Session.start({ hosts: [[0]] });
    const rank = await session.rank(0, { seal: true, network });
    await average([rank], [Float32Array.of(2)], [1]);
    await session.finish();
  }
  using fake = Deno.listen({ hostname: "127.0.0.1", port: 0 });
  const answering = (async () => {
    using connection = await fake.accept();
    await connection.write(Uint8Array.from(network.down));
    // Until the rank hangs up.
    const sink = new Uint8Array(1_000);
    while (await connection.read(sink).catch(() => null) !== null);
  })();
  await using session = await Session.start({ hosts: [[0]], later: [0] });
  await failure(
    "joining",
    session.rank(0, { seal: true, relay: `127.0.0.1:${fake.addr.port}` }),
    "checking a seal",
  );
  await answering;
});

Deno.test("replay: a sealed frame that comes twice costs its sender the connection", async () => {
  await using session = await Session.start({ hosts: [[0, 1]] });
  let twice = 0;
  const network: Network = {
    ...tcp,
    connect: async (...args) => {
      const connection = await tcp.connect(...args);
      const { write } = connection;
      let kept: Uint8Array | undefined;
      connection.write = async (bytes) => {
        // The second frame leaves as the first one, seal and all.
        if (bytes.length < 50) return await write.call(connection, bytes);
        kept ??= bytes.slice();
        if (twice++ === 0) return await write.call(connection, bytes);
        let done = 0;
        while (done < kept.length) done += await write.call(connection, kept.subarray(done));
        return bytes.length;
      };
      return connection;
    },
  };
  const odd = await session.rank(0, { seal: true, network });
  const other = await session.rank(1);
  const values = () => [new Float32Array(20).fill(2), new Float32Array(20).fill(4)];
  await average([odd, other], values(), [1, 1]);
  const refused = failure(
    "the copy",
    odd.allReduce([values()[0]!], { mass: 1 }),
    "checking a seal",
  );
  const [, mine] = values();
  assertEquals(await average([other], [mine!], [1]), [1]);
  await refused;
  assertEquals(mine![0], 4);
});

Deno.test("replay: who has another salt is refused before it has a place", async () => {
  await using session = await Session.start({ hosts: [[0]] });
  const salt = "5be1c07d93f2a8460e719d3cb84f2a65";
  await failure(
    "joining",
    session.rank(0, { seal: true, salt }),
    "salts of the two processes differ",
  );
  const rank = await session.rank(0, { seal: true });
  assertEquals(await average([rank], [Float32Array.of(1)], [1]), [1]);
  await session.finish();
});

Deno.test("replay: with --require-nonce a relay refuses a plain rank, and says what to do", async () => {
  await using session = await Session.start({ hosts: [[0]], relays: { 0: { terms } } });
  await failure("joining", session.rank(0), "connect it with the option seal");
  const rank = await session.rank(0, { seal: true });
  assertEquals(await average([rank], [Float32Array.of(1)], [1]), [1]);
  await session.finish();
});
