// Hostile conversations with live processes: a controller, relays, honest ranks, and beside them
// connections, some at a time, that say recorded and plain conversations with something wrong in them. Honest
// rounds stay exact and finish, the processes live, their memory and their connections stay bounded.
//
//     TIERFOLD_FUZZ_SEED=N deno test -A tests/fuzz/conversations_test.ts     replays one batch
//     TIERFOLD_FUZZ_BATCHES=N deno test -A ...                               more than the default
import { assert, assertEquals, AssertionError } from "@std/assert";
import * as fc from "fast-check";
import { TcpProxy } from "../../bench/chaos/proxy.ts";
import { RankClient } from "../../rank/client.ts";
import { Member } from "../cluster/cluster.ts";
import { RawChannel, RawRank } from "../cluster/raw.ts";
import { PATIENCE_MS, pause, soon } from "../cluster/waiting.ts";
import { SESSION_SALT as SALT } from "../vectors.ts";
import { type Attack, ATTACKS, attacks, play, type Script } from "./attack.ts";
import { rankConversation, Recorder, relayConversation, VALUES } from "./conversation.ts";

const BATCHES = Number(Deno.env.get("TIERFOLD_FUZZ_BATCHES") ?? 14);
const SEED = Deno.env.get("TIERFOLD_FUZZ_SEED");

/** Ranks that hostile connections claim: the first of them a recorded one. */
const SEATS = [2, 3, 4, 8, 9, 10, 11];
/** Ranks of the first relay: two honest ones, and places for hostile ones. */
const FIRST = [0, 1, ...SEATS];
/** The rank of an honest relay of its own. */
const APART = 5;
/** Ranks of hosts that hostile relays carry. */
const HOSTILE = [6, 7];
const HONEST = [0, 1, APART];
const WORLD = 12;
const GUESTS = [...SEATS, ...HOSTILE];
const HONEST_SUM = HONEST.reduce((sum, rank) => sum + 2 ** rank, 0);

/** What a process may grow by under attack, in bytes: a gibibyte that is only announced is not taken. */
const GROWTH_BYTES = 256 * 1024 ** 2;

const CAN_LOOK = await Deno.stat("/proc/self/fd").then(() => true, () => false);

/** The processes under attack, the honest ranks, and what hostile ones say. */
class Arena implements AsyncDisposable {
  readonly #members: Member[] = [];
  readonly #clients: RankClient[] = [];
  readonly scripts: Script[] = [];
  controller!: Member;
  relay!: Member;

  static async open(): Promise<Arena> {
    const arena = new Arena();
    try {
      await arena.#start();
      return arena;
    } catch (error) {
      await arena[Symbol.asyncDispose]();
      throw error;
    }
  }

  get servers(): readonly Member[] {
    return [this.controller, this.relay];
  }

  async #start(): Promise<void> {
    this.controller = await this.#server("the controller", "../../controller.ts", []).listens();
    const carry = (host: string, ranks: readonly number[], controller: string) =>
      this.#server(`relay ${host}`, "../../relay.ts", [
        ...["--host", host, "--ranks", ranks.join(","), "--controller", controller],
      ]).listens();
    this.relay = await carry("first", FIRST, this.controller.address);
    const apart = await carry("apart", [APART], this.controller.address);
    // A real relay and a real rank behind proxies that take down what they say.
    const [relaySays, rankSays] = [new Recorder(), new Recorder()];
    const toController = new TcpProxy(this.controller.address, relaySays.tap);
    const toRelay = new TcpProxy(this.relay.address, rankSays.tap);
    try {
      const hostile = await carry(hostOf(6), [6], toController.address);
      for (const rank of HONEST) {
        await this.#join(rank, rank === APART ? apart.address : this.relay.address);
      }
      // Everybody takes part once, so that nobody is waited for later.
      const guests = [
        await RankClient.connect(options(2, toRelay.address)),
        await RankClient.connect(options(6, hostile.address)),
      ];
      const raws = await Promise.all(
        SEATS.slice(1).map((rank) => RawRank.join(this.relay.address, rank, WORLD)),
      );
      const channel = await RawChannel.join(this.controller.address, hostOf(7), [7]);
      await channel.sendControl({ type: "rank_exit", rank: 7 });
      for (const raw of raws) raw.close();
      for (let round = 0; round < 3; round++) {
        const [all] = await Promise.all([
          this.round(),
          ...guests.map((guest) => allReduce(guest)),
        ]);
        assertEquals(all, [HONEST_SUM + 2 ** 2 + 2 ** 6, 5]);
      }
      for (const guest of guests) await guest.close();
      channel.close();
      await hostile.ends(0);
    } finally {
      await toController.close();
      await toRelay.close();
    }
    this.scripts.push(
      { leg: "rank", conversation: rankSays.of(0) },
      { leg: "relay", conversation: relaySays.of(0) },
      ...SEATS.map((rank): Script => ({
        leg: "rank",
        conversation: rankConversation(rank, WORLD, 3),
      })),
      ...HOSTILE.map((rank): Script => ({
        leg: "relay",
        conversation: relayConversation(hostOf(rank), rank, 3),
      })),
    );
    for (const { conversation } of this.scripts) assert(conversation.length >= 4, "not recorded");
  }

  #server(name: string, script: string, args: readonly string[]): Member {
    const member = new Member(
      name,
      `../fuzz/${script}`,
      [...args, "--world-size", `${WORLD}`, "--log-level", "warning"],
      SALT.toHex(),
      ["--allow-net=127.0.0.1", "--allow-env=TIERFOLD_*"],
    );
    this.#members.push(member);
    return member;
  }

  async #join(rank: number, relay: string): Promise<void> {
    this.#clients.push(await RankClient.connect(options(rank, relay)));
  }

  /**
   * A round of the honest ranks: all of them have the same bits.
   *
   * @param exact Whether all of its values must be the same, as they are in every honest frame.
   * @returns The sum and the mass.
   */
  async round(exact = true): Promise<[sum: number, mass: number]> {
    const results = await soon("a round", Promise.all(this.#clients.map(allReduce)), 60_000);
    const [{ data, mass }] = results as [typeof results[0]];
    if (exact) assertEquals([...data], new Array(VALUES).fill(data[0]), "the values of a result");
    for (const other of results) {
      assertEquals(new Uint8Array(other.data.buffer), new Uint8Array(data.buffer));
      assertEquals(other.mass, mass);
    }
    return [data[0]!, mass];
  }

  /** Rounds until `end`, the last one afterwards, where hostile frames can no longer be. */
  async rounds(end: Promise<unknown>, exact: boolean): Promise<number> {
    let over = false;
    const ended = end.then(() => over = true);
    let count = 0;
    while (!over) {
      const [sum, mass] = await this.round(exact);
      count++;
      if (!exact) continue;
      // Who may speak can pass on what another said: a frame does not name its rank. But each one that
      // counts is whole, counts in the mass, and the honest ones are there once.
      const guests = mass - HONEST.length;
      assert(guests >= 0 && guests <= GUESTS.length, `the mass of a sum of ${sum} is ${mass}`);
      assert(
        sumsOf(guests, sum - HONEST_SUM),
        `a sum of ${sum} is not that of ${HONEST} and ${guests} frames of ${GUESTS}`,
      );
    }
    await ended;
    return count;
  }

  async finish(): Promise<void> {
    await Promise.all(this.#clients.map((client) => client.close()));
    for (const member of this.#members) await member.ends(0, 60_000);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all(this.#clients.map((client) => client.close()));
    for (const { child } of this.#members) child.kill("SIGKILL");
    await Promise.all(this.#members.map(({ child }) => child.finish()));
  }
}

/** Whether `rest` is what so many frames of guests sum to: each rank gives its own power of two. */
function sumsOf(frames: number, rest: number, from = 0): boolean {
  if (frames === 0 || from === GUESTS.length) return frames === 0 && rest === 0;
  const value = 2 ** GUESTS[from]!;
  return (rest >= value && sumsOf(frames - 1, rest - value, from)) ||
    sumsOf(frames, rest, from + 1);
}

const hostOf = (rank: number) => `hostile-${rank}`;

const options = (rank: number, relay: string) => ({
  relay,
  rank,
  worldSize: WORLD,
  salt: SALT,
  joinTimeoutMs: PATIENCE_MS,
  roundTimeoutMs: 60_000,
});

async function allReduce(client: RankClient): Promise<{ data: Float32Array; mass: number }> {
  const data = new Float32Array(VALUES).fill(2 ** client.rank);
  const { mass } = await client.allReduce([data], { kind: "control", mass: 1 });
  return { data, mass };
}

/** Bytes of memory that a process has, and how many sockets. */
async function usage({ child }: Member): Promise<{ memory: number; sockets: number }> {
  const status = await Deno.readTextFile(`/proc/${child.pid}/status`);
  const memory = 1024 * Number(/VmRSS:\s+(\d+)/.exec(status)![1]);
  // A thread's runtime has descriptors of its own for what the process has once.
  const sockets = new Set<string>();
  for await (const { name } of Deno.readDir(`/proc/${child.pid}/fd`)) {
    const link = await Deno.readLink(`/proc/${child.pid}/fd/${name}`).catch(() => "");
    if (link.startsWith("socket:")) sockets.add(link);
  }
  return { memory, sockets: sockets.size };
}

const drawn = (seed: number): readonly Attack[] => fc.sample(attacks, { seed, numRuns: 1 })[0]!;

Deno.test({
  name: "fuzz: hostile conversations beside honest rounds" +
    (CAN_LOOK ? "" : " (skipped: no /proc to see memory and sockets in)"),
  ignore: !CAN_LOOK,
  fn: hostileConversations,
});

async function hostileConversations(): Promise<void> {
  const first = SEED === undefined
    ? crypto.getRandomValues(new Uint32Array(1))[0]! >>> 1
    : Number(SEED);
  const count = SEED === undefined ? BATCHES : 1;
  await using arena = await Arena.open();
  const doors = { rank: arena.relay.address, relay: arena.controller.address };
  const before = await Promise.all(arena.servers.map(usage));
  let [rounds, closed] = [0, 0];
  for (let seed = first; seed < first + count; seed++) {
    // Frames with garbage that is signed well count as they are: then only agreement can be checked.
    const reseal = seed % 2 === 1;
    const playing = Promise.all(
      drawn(seed).map((attack) => play(attack, arena.scripts, doors, reseal)),
    );
    try {
      const [played, had] = await Promise.all([playing, arena.rounds(playing, !reseal)]);
      rounds += had;
      closed += played.filter((theirs) => theirs).length;
      // Ends of connections may be heard of a moment later; a frame that was whole may still count.
      await until("a round of the honest ranks alone, exact", async () => {
        const [sum, mass] = await arena.round(!reseal);
        return sum === HONEST_SUM && mass === HONEST.length;
      });
      for (const [i, server] of arena.servers.entries()) {
        const { memory } = await usage(server);
        const growth = memory - before[i]!.memory;
        assert(growth < GROWTH_BYTES, `${server.name} has grown by ${growth} bytes`);
      }
    } catch (error) {
      const logs = arena.servers.map(({ name, child }) => `${name}:\n${child.stderr}`).join("\n");
      throw new AssertionError(
        `seed ${seed}: ${error instanceof Error ? error.message : error}\nreplay it with\n` +
          `    TIERFOLD_FUZZ_SEED=${seed} deno test -A tests/fuzz/conversations_test.ts\n${logs}`,
        { cause: error },
      );
    }
  }
  for (const [i, server] of arena.servers.entries()) {
    await until(
      `${server.name} has closed every hostile connection`,
      async () => {
        // Who came in the middle of a round is heard of at its end.
        await arena.round();
        return (await usage(server)).sockets <= before[i]!.sockets;
      },
    );
  }
  console.log(
    `fuzz: seeds ${first} to ${first + count - 1}: ${ATTACKS * count} hostile connections, ` +
      `${closed} closed by the servers first, beside ${rounds} honest rounds`,
  );
  await arena.finish();
}

async function until(what: string, holds: () => Promise<boolean>): Promise<void> {
  const end = Date.now() + PATIENCE_MS;
  while (!await holds()) {
    if (Date.now() > end) throw new AssertionError(`${what}: not within ${PATIENCE_MS} ms`);
    await pause(20);
  }
}
