// Relays that break a rule: each learns why, the log names it, and the other hosts finish their round with
// the exact divisor.
import { assert, assertEquals } from "@std/assert";
import { encodeControl } from "../../wire/control.ts";
import { encodeChannelMagic, encodeRecord } from "../../wire/mux.ts";
import { SESSION_SALT as SALT, unhex } from "../vectors.ts";
import { frameOf, RawChannel, RawPeer } from "./raw.ts";
import { average, Session } from "./session.ts";
import { failure, matches, soon } from "./waiting.ts";

const OTHER_SALT = unhex("ff".repeat(16));

function join(...parts: Uint8Array[]): Uint8Array {
  return Uint8Array.from(parts.flatMap((part) => [...part]));
}

function hello(host: string, ranks: number[], salt: Uint8Array = SALT): Uint8Array {
  return encodeRecord("control", 0, encodeControl({ type: "hello", host, ranks }), salt);
}

Deno.test("strangers at the controller's port are told why, and disturb nobody", async (t) => {
  await using session = await Session.start({ hosts: [[0, 1], [2]] });
  const clients = await session.ranks();
  const magic = encodeChannelMagic();
  const rows: [name: string, bytes: Uint8Array, reason: string | RegExp][] = [
    [
      "garbage",
      new TextEncoder().encode("GET / HTTP/1.1\r\n\r\n"),
      "reading the channel magic: 0x20544547 came, expected 0xf10d17e1",
    ],
    [
      "garbage behind the magic",
      join(magic, new Uint8Array(40).fill(0x41)),
      "reading a record's header: magic 0x41414141, expected 0xf10d17d0",
    ],
    [
      "a Hello under another salt",
      join(magic, hello("elsewhere", [2], OTHER_SALT)),
      /verifying a control record of \d+ bytes: its MAC does not match; the salts/,
    ],
    [
      "a rank that another relay carries",
      join(magic, hello("twin", [1])),
      'Hello of host "twin": rank 1 is carried by host "host-0" already',
    ],
    [
      "a rank outside the world",
      join(magic, hello("far", [3])),
      'Hello of host "far": rank 3 is not below the world size 3 of this session',
    ],
    ["no rank", join(magic, hello("idle", [])), 'Hello of host "idle": it carries no rank'],
    [
      "something else than Hello",
      join(
        magic,
        encodeRecord("control", 0, encodeControl({ type: "rank_exit", rank: 0 }), SALT),
      ),
      /reading the first record of 127\.0\.0\.1:\d+: something else than Hello came/,
    ],
    [
      "a frame before Hello",
      join(magic, encodeRecord("host_frame", 0, frameOf([[1, 1]]), SALT)),
      "sent a frame before Hello",
    ],
  ];
  for (const [name, bytes, reason] of rows) {
    await t.step(name, async () => {
      using peer = await RawPeer.connect(session.controller.address);
      await peer.write(bytes);
      const said = await peer.refusal();
      assert(matches(said, reason), said);
      await session.log.has("warning", reason);
      const values = clients.map(({ rank }) => new Float32Array([rank]));
      assertEquals(await average(clients, values, [1, 1, 2]), [4, 4, 4]);
      assertEquals(values.map(([value]) => value), [1.25, 1.25, 1.25]);
    });
  }
  await t.step("no word, and half a word", async () => {
    for (const bytes of [magic.subarray(0, 0), magic.subarray(0, 3)]) {
      using peer = await RawPeer.connect(session.controller.address);
      await peer.write(bytes);
      await peer.closeWrite();
      await peer.rest();
    }
    await session.log.has("closed without a word");
    await session.log.has("the channel magic", "the stream ended after 3 of 4 bytes");
  });
  const { controller } = await session.finish();
  assertEquals(controller.lost, []);
});

interface Culprit {
  readonly name: string;
  readonly act: (relay: RawChannel) => Promise<void>;
  readonly reason: string | RegExp;
  /** What the log says, where that is not the reason. */
  readonly log?: string[];
}

const culprits: Culprit[] = [
  {
    name: "a frame whose own tag is wrong",
    act: (relay) => relay.sendFrame("host_frame", frameOf([[1, 1]], { salt: OTHER_SALT })),
    reason: "verifying a round frame: its MAC does not match",
  },
  {
    name: "a record whose tag is wrong",
    act: (relay) => relay.write(encodeRecord("host_frame", 0, frameOf([[1, 1]]), OTHER_SALT)),
    reason: /verifying a host_frame record of 47 bytes: its MAC does not match/,
  },
  {
    name: "a record above the ceiling",
    act: (relay) => {
      const record = encodeRecord("host_frame", 0, new Uint8Array(0), SALT);
      new DataView(record.buffer).setUint32(13, 70_000, true);
      return relay.write(record);
    },
    reason: "70000 bytes announced, above the frame ceiling of 65536",
  },
  {
    name: "another schema than a host of more ranks",
    act: (relay) => relay.sendFrame("host_frame", frameOf([[1, 1, 1]])),
    reason:
      'folding the frame of host "host-1" with that of host "host-0": tensor 0 has shape [3], ' +
      'expected [2]; the round goes on without host "host-1"',
  },
  {
    name: "a result",
    act: (relay) => relay.sendFrame("broadcast", frameOf([[1, 1]])),
    reason: /a broadcast came, which only goes the other way/,
  },
  {
    name: "an order for the other way",
    act: (relay) => relay.sendControl({ type: "declare_dead", rank: 0 }),
    reason: 'reading from host "host-1": a declare_dead came, which only goes the other way',
  },
  {
    name: "the exit of another host's rank",
    act: (relay) => relay.sendControl({ type: "rank_exit", rank: 0 }),
    reason: 'RankExit of host "host-1": it does not carry rank 0',
  },
  {
    name: "an exit twice",
    act: async (relay) => {
      await relay.sendControl({ type: "rank_exit", rank: 2 });
      await relay.sendControl({ type: "rank_exit", rank: 2 });
    },
    reason: 'RankExit of host "host-1": it does not carry rank 2',
    log: ["info", "host host-1 is done"],
  },
  {
    name: "the claim of another host's rank",
    act: (relay) => relay.sendControl({ type: "hello", host: "host-1", ranks: [1, 2] }),
    reason: 'Hello of host "host-1": rank 1 is carried by host "host-0" already',
  },
];

for (const { name, act, reason, log } of culprits) {
  Deno.test(`a relay that sends ${name} is out, the others finish`, async () => {
    await using session = await Session.start({
      hosts: [[0, 1], [2]],
      later: [1],
      frameCeilingBytes: 65_536,
    });
    const clients = await session.ranks(0, 1);
    using culprit = await RawChannel.join(session.controller.address, "host-1", [2]);
    const round = async () => {
      const values = clients.map(({ rank }) => new Float32Array([rank, 5]));
      assertEquals(await average(clients, values, [1, 3]), [4, 4]);
      assertEquals(values.map((value) => [...value]), [[0.75, 5], [0.75, 5]]);
    };
    await act(culprit);
    const [said] = await Promise.all([
      soon("the reason", culprit.refusal()).finally(() => culprit.close()),
      round(),
    ]);
    assert(matches(said, reason), said);
    await session.log.has(...log ?? ["warning", "host host-1 is out in round 0", reason]);
    await round();
    await session.finish();
  });
}

Deno.test("a relay whose second frame comes before the round closed: its first one counts", async () => {
  await using session = await Session.start({ hosts: [[0, 1], [2]], later: [1] });
  const clients = await session.ranks(0, 1);
  using culprit = await RawChannel.join(session.controller.address, "host-1", [2]);
  await culprit.sendFrame("host_frame", frameOf([[6]], { weight: 2 }));
  await culprit.sendFrame("host_frame", frameOf([[6]], { weight: 2 }));
  const said = await soon("the reason", culprit.refusal());
  culprit.close();
  assert(said.includes('host "host-1" sent a frame in round 0, in which none of it was due'), said);
  await session.log.has("host host-1 is out in round 0", "its frame stays in the round");
  const values = [new Float32Array([1]), new Float32Array([1])];
  assertEquals(await average(clients, values, [1, 1]), [4, 4]);
  assertEquals(values.map(([value]) => value), [2, 2]);
  await session.finish();
});

Deno.test("a relay that closes inside a frame is out, the others finish", async () => {
  await using session = await Session.start({ hosts: [[0, 1], [2]], later: [1] });
  const clients = await session.ranks(0, 1);
  const culprit = await RawChannel.join(session.controller.address, "host-1", [2]);
  await culprit.write(encodeRecord("host_frame", 0, frameOf([[1]]), SALT).subarray(0, 40));
  culprit.close();
  const values = [new Float32Array([1]), new Float32Array([2])];
  assertEquals(await average(clients, values, [1, 1]), [2, 2]);
  assertEquals(values.map(([value]) => value), [1.5, 1.5]);
  await session.log.has(
    "host host-1 is out in round 0 with ranks 2",
    "the stream ended after 15 of 43 bytes",
    "the round goes on without it",
  );
  await session.finish();
});

Deno.test("relays of ours that are told something wrong say what", async (t) => {
  const rows = [
    {
      name: "another salt",
      told: { salt: OTHER_SALT },
      text: "with a reason that is not signed with our salt: the salts of the two processes differ",
      log: "verifying a control record",
    },
    {
      name: "a rank that another relay carries",
      told: { ranks: [1, 2] },
      text: 'because: Hello of host "host-1": rank 1 is carried by host "host-0" already',
      log: "rank 1 is carried",
    },
    {
      name: "another world size",
      told: { ranks: [2, 3], worldSize: 4 },
      text:
        'because: Hello of host "host-1": its relay was told world size 4, this session has 3; ' +
        "start the relay with --world-size 3",
      log: "was told world size 4",
    },
  ];
  for (const { name, told, text, log } of rows) {
    await t.step(name, async () => {
      await using session = await Session.start({
        hosts: [[0, 1], [2]],
        later: [1],
        relays: { 1: told },
      });
      const clients = await session.ranks(0, 1);
      const wrong = await session.startRelay(1);
      await failure("the relay's end", wrong.outcome, /127\.0\.0\.1:\d+ refused us/, text);
      await session.log.has("warning", log);
      // The round still waits for rank 2, which a good relay may claim yet.
      using right = await RawChannel.join(session.controller.address, "right", [2]);
      await right.sendFrame("host_frame", frameOf([[8]], { weight: 2 }));
      const values = [new Float32Array([1]), new Float32Array([3])];
      assertEquals(await average(clients, values, [1, 1]), [4, 4]);
      assertEquals(values.map(([value]) => value), [3, 3]);
    });
  }
});

Deno.test("a host whose ranks disagree with more ranks elsewhere learns it down to its ranks", async (t) => {
  const round = async (hosts: number[][], odd: number) => {
    await using session = await Session.start({ hosts });
    const clients = await session.ranks();
    const values = clients.map(({ rank }) =>
      new Float32Array(hosts[odd]!.includes(rank) ? 3 : 2).fill(rank)
    );
    const stay = clients.filter(({ rank }) => !hosts[odd]!.includes(rank));
    const mean = stay.reduce((sum, { rank }) => sum + rank, 0) / stay.length;
    const rounds = clients.map((client, i) => client.allReduce([values[i]!], { mass: 1 }));
    const text = `folding the frame of host "host-${odd}" with that of host "host-${1 - odd}": ` +
      "tensor 0 has shape [3], expected [2]";
    await Promise.all(clients.map(async ({ rank }, i) => {
      if (hosts[odd]!.includes(rank)) {
        await failure(
          `the round of rank ${rank}`,
          rounds[i]!,
          `refused rank ${rank} of 3 because: the relay of host host-${odd} ended`,
          text,
        );
        assertEquals(values[i]![0], rank);
      } else {
        assertEquals((await soon("the round", rounds[i]!)).mass, stay.length);
        assertEquals(values[i]![0], Math.fround(mean));
      }
    }));
    await failure("the odd relay's end", session.relays[odd]!.outcome, "refused us because", text);
    await session.log.has(`host host-${odd} is out in round 0`, text);
    assertEquals(await average(stay, stay.map(() => new Float32Array(1)), stay.map(() => 1)), [
      ...stay.map(() => stay.length),
    ]);
  };
  await t.step("the odd host comes last", () => round([[0, 1], [2]], 1));
  await t.step("the odd host comes first", () => round([[0], [1, 2]], 0));
});

Deno.test("an odd frame whose relay is lost is dropped, and its successor not to blame", async () => {
  await using session = await Session.start({ hosts: [[0], [1, 2], [3]], later: [0, 1, 2] });
  const { address } = session.controller;
  const odd = await RawChannel.join(address, "odd", [0]);
  await odd.sendFrame("host_frame", frameOf([[1, 1]]));
  odd.close();
  await session.log.has("host odd is out in round 0", "its frame stays in the round");
  using heir = await RawChannel.join(address, "heir", [0]);
  using many = await RawChannel.join(address, "many", [1, 2]);
  using last = await RawChannel.join(address, "last", [3]);
  await many.sendFrame("host_frame", frameOf([[6]], { weight: 2 }));
  await last.sendFrame("host_frame", frameOf([[0]]));
  for (const channel of [many, last]) {
    const { header, values } = await channel.expectFrame("broadcast");
    assertEquals([header.weight, values], [3, [[2]]]);
  }
  await session.log.has(
    "warning",
    "folding the frame of the lost host of rank 0",
    "tensor 0 has shape [2]",
  );
  for (const channel of [heir, many, last]) await channel.sendFrame("host_frame", frameOf([[3]]));
  for (const channel of [heir, many, last]) {
    assertEquals((await channel.expectFrame("broadcast")).header.weight, 3);
  }
});
