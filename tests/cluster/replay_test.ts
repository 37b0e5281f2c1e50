// Whole recorded connections, played again: refused where both ends seal their channel.
import { assertEquals } from "@std/assert";
import { type Network, tcp } from "../../transport/network.ts";
import { TERMS } from "../../serve/terms.ts";
import { RawChannel, RawController, RawPeer } from "./raw.ts";
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
  assertEquals(text.includes("checking the seal of a record"), true, text);
  await session.log.has("a connection from", "the seal of a record");
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
  const ended = failure("the relay", victim.relays[0]!.outcome, "the seal of a record");
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
  const rank = await strict.rank(0);
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
