// A channel to the controller that breaks: the round under way counts once, and ranks notice nothing.
import { assert, assertEquals } from "@std/assert";
import type { Network } from "../../transport/network.ts";
import { tcp } from "../../transport/network.ts";
import type { Connection } from "../../transport/connection.ts";
import type { HelloStanding } from "../../wire/control.ts";
import { SESSION_SALT as SALT } from "../vectors.ts";
import { frameOf, RawChannel, RawController } from "./raw.ts";
import { average, Session } from "./session.ts";
import { failure, PATIENCE_MS, soon } from "./waiting.ts";

/** Real TCP whose connections can be cut, and which can be told to lose what arrives. */
class Cuttable implements Network {
  readonly listen = tcp.listen;
  #connections: Connection[] = [];
  /** While set, nothing that the other end says arrives. */
  deaf = false;

  async connect(...args: Parameters<Network["connect"]>): Promise<Connection> {
    const connection = await tcp.connect(...args);
    const never = Promise.withResolvers<null>();
    const one: Connection = {
      peer: connection.peer,
      read: async (into) => {
        const count = await connection.read(into);
        return this.deaf ? await never.promise : count;
      },
      write: (bytes) => connection.write(bytes),
      closeWrite: () => connection.closeWrite(),
      close: () => {
        never.resolve(null);
        connection.close();
      },
    };
    this.#connections.push(one);
    return one;
  }

  cut(): void {
    for (const connection of this.#connections.splice(0)) connection.close();
  }
}

async function start(hosts: readonly (readonly number[])[]) {
  const networks = hosts.map(() => new Cuttable());
  const session = await Session.start({
    hosts,
    controller: { returnDeadlineMs: PATIENCE_MS },
    relays: Object.fromEntries(networks.map((controllerNetwork, host) => [host, {
      controllerNetwork,
      reconnectDeadlineMs: PATIENCE_MS,
    }])),
  });
  return { session, networks };
}

const values = (...list: number[]) => list.map((value) => Float32Array.of(value));

Deno.test("reconnect: a channel cut between rounds is opened again, and rounds go on", async () => {
  const { session, networks } = await start([[0, 1], [2]]);
  await using _ = session;
  const clients = await session.ranks();
  for (let round = 0; round < 4; round++) {
    if (round === 1 || round === 2) {
      networks[round - 1]!.cut();
      await session.log.has(`the relay of host host-${round - 1} is back: back`);
    }
    const given = values(1 + round, 2, 6);
    assertEquals(await average(clients, given, [1, 1, 1]), [3, 3, 3]);
    const mean = Math.fround((9 + round) * Math.fround(1 / 3));
    assertEquals(given, values(mean, mean, mean));
  }
  const { controller } = await session.finish();
  assertEquals([controller.rounds, controller.left.toSorted()], [4, [0, 1, 2]]);
});

Deno.test("reconnect: a frame that the controller has is not counted again", async () => {
  const { session, networks } = await start([[0, 1], [2]]);
  await using _ = session;
  const clients = await session.ranks();
  const given = values(1, 2, 6);
  const first = [0, 1].map((i) => clients[i]!.allReduce([given[i]!], { mass: 1 }));
  await session.log.has("host-0", "round 0: model of 0,1 goes up");
  await session.log.has("the frame of host host-0 is in round 0");
  networks[0]!.cut();
  await session.log.has("host host-0 is out in round 0", "its frame stays in the round");
  await session.log.has("the relay of host host-0 is back: held");
  const results = await soon(
    "the round",
    Promise.all([...first, clients[2]!.allReduce([given[2]!], { mass: 1 })]),
  );
  assertEquals(results.map(({ mass }) => mass), [3, 3, 3]);
  assertEquals(given, values(3, 3, 3));
  await average(clients, values(1, 2, 3), [1, 1, 1]);
  await session.finish();
});

Deno.test("reconnect: a result lost on its way is sent again, bit for bit, to the one it was for", async () => {
  const { session, networks } = await start([[0, 1], [2]]);
  await using _ = session;
  const clients = await session.ranks();
  const given = values(0.1, 0.7, 0.3);
  const first = [0, 1].map((i) => clients[i]!.allReduce([given[i]!], { mass: 1 }));
  await session.log.has("the frame of host host-0 is in round 0");
  networks[0]!.deaf = true;
  const other = await soon("the round", clients[2]!.allReduce([given[2]!], { mass: 1 }));
  assertEquals(other.mass, 3);
  networks[0]!.cut();
  networks[0]!.deaf = false;
  // The others go on meanwhile: what is owed stays.
  const alone = values(8);
  await session.log.has("host host-0 is out in round 1");
  const results = await soon("the late result", Promise.all(first));
  await session.log.has("the relay of host host-0 is back: late");
  assertEquals(results.map(({ mass }) => mass), [3, 3]);
  assertEquals(given[0], given[2]);
  assertEquals(given[1], given[2]);
  const masses = await average(clients, [...values(4, 4), ...alone], [1, 1, 1]);
  assertEquals(masses, [3, 3, 3]);
  await session.finish();
});

Deno.test("reconnect: a frame cut off on its way is sent again and counts once", async () => {
  using controller = new RawController();
  const { address } = controller;
  await using session = await Session.start({
    hosts: [[0, 1]],
    relays: { 0: { controller: address, reconnectDeadlineMs: PATIENCE_MS } },
  });
  const accepting = controller.accept(false);
  const { channel } = await accepting;
  await channel.sendControl({
    type: "hello_ack",
    place: { session: 77, round: 0, fate: "none" },
  });
  const clients = await session.ranks();
  const given = values(1, 2);
  const rounds = clients.map((client, i) => client.allReduce([given[i]!], { mass: 1 }));
  rounds.forEach((round) => round.catch(() => {}));
  const lost = await channel.expectFrame("host_frame");
  assertEquals([lost.header.weight, lost.values], [2, [[3]]]);
  channel.close();
  const again = await controller.accept(false);
  assertEquals(again.ranks, [0, 1]);
  const { instance, ...standing } = again.standing!;
  assertEquals(standing, { session: 77, round: 0, sent: 1, pending: true });
  await again.channel.sendControl({
    type: "hello_ack",
    place: { session: 77, round: 6, fate: "again" },
  });
  const same = await again.channel.expectFrame("host_frame");
  assertEquals([same.header.weight, same.values], [2, [[3]]]);
  again.channel.close();
  // The third time the controller has it: nothing is sent, and the result is taken.
  const third = await controller.accept(false);
  assertEquals(third.standing, { instance, session: 77, round: 6, sent: 1, pending: true });
  await third.channel.sendControl({
    type: "hello_ack",
    place: { session: 77, round: 6, fate: "held" },
  });
  await third.channel.sendFrame("broadcast", frameOf([[1.5]], { weight: 2 }));
  assertEquals((await soon("the round", Promise.all(rounds))).map(({ mass }) => mass), [2, 2]);
  assertEquals(given, values(1.5, 1.5));
  third.channel.close();
  const fourth = await controller.accept(false);
  assertEquals(fourth.standing, { instance, session: 77, round: 7, sent: 1, pending: false });
  fourth.channel.close();
  session.relays[0]!.stop();
  await failure("the relay", session.relays[0]!.outcome, "stopped by the test");
});

Deno.test("reconnect: what trying again cannot cure ends the relay at once", async (t) => {
  const cases: [string, string, (channel: RawChannel) => Promise<void>][] = [
    ["a controller that forgets", "it does not say what became of the frame", async (channel) => {
      await channel.sendControl({ type: "hello_ack" });
    }],
    ["a controller with another salt", "MAC", async (channel) => {
      await channel.sendControl({ type: "hello_ack" }, new Uint8Array(16).fill(9));
    }],
  ];
  for (const [name, text, answer] of cases) {
    await t.step(name, async () => {
      using controller = new RawController();
      await using session = await Session.start({
        hosts: [[0]],
        relays: { 0: { controller: controller.address, reconnectDeadlineMs: PATIENCE_MS } },
      });
      const { channel } = await controller.accept();
      const [client] = await session.ranks();
      const round = failure("the rank", client!.allReduce(values(1), { mass: 1 }), text);
      const relay = failure("the relay", session.relays[0]!.outcome, text);
      await channel.expectFrame("host_frame");
      channel.close();
      const again = await controller.accept(false);
      await answer(again.channel);
      await Promise.all([round, relay]);
      again.channel.close();
    });
  }
  await t.step("a controller that does not come back", async () => {
    using controller = new RawController();
    await using session = await Session.start({
      hosts: [[0]],
      relays: { 0: { controller: controller.address, reconnectDeadlineMs: 300 } },
    });
    const { channel } = await controller.accept();
    const [client] = await session.ranks();
    const text = /the controller was lost .* and not reached again: .* in \d+ ms failed/;
    const round = failure("the rank", client!.allReduce(values(1), { mass: 1 }), text);
    const relay = failure("the relay", session.relays[0]!.outcome, text);
    await channel.expectFrame("host_frame");
    controller[Symbol.dispose]();
    channel.close();
    await Promise.all([round, relay]);
  });
});

Deno.test("reconnect: a relay takes over from its own lost channel, and nobody else does", async () => {
  await using session = await Session.start({ hosts: [[0], [1]], later: [0, 1] });
  const { address } = session.controller;
  const standing = { instance: 42, session: 0, round: 0, sent: 0, pending: false };
  const hello = (host: string, more: Partial<HelloStanding>) =>
    RawChannel.hello(address, host, [0], SALT, { ...standing, ...more });
  using first = await hello("a", {});
  const { place } = await first.expectControl("hello_ack");
  assertEquals([place?.round, place?.fate], [0, "none"]);
  using other = await hello("b", { instance: 43 });
  assert((await other.refusal()).includes('rank 0 is carried by host "a" already'));
  using again = await hello("a", { session: place!.session, sent: 1, pending: true });
  assertEquals((await again.expectControl("hello_ack")).place?.fate, "again");
  await first.rest();
});
