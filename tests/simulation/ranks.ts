// The training process of the simulation: it connects, takes part in round after round, and comes back
// when it has lost its place.
import { RankClient } from "../../rank/client.ts";
import { formatAddress } from "../../transport/tcp.ts";
import { WireError } from "../../wire/errors.ts";
import type { Host } from "./network.ts";
import type { Attempt, Outcome } from "./oracle.ts";
import { Random } from "./random.ts";
import { sleep } from "./virtual_time.ts";
import { relayAddress, SALT, type Supervised, type World } from "./world.ts";

/** How long a rank tries to get in, in milliseconds. */
const JOIN_TIMEOUT_MS = 8_000;
/** How much later than asked an answer of the client may come, in milliseconds. */
const SLACK_MS = 2_500;
/**
 * How long, besides two deadlines of a round, others may hold a rank up, in milliseconds: the controller's
 * patience with a relay (5 s), the first round's wait for ranks, a process that is frozen or started again,
 * delays.
 */
const HELD_UP_MS = 20_000;

/** Rounds that every rank must finish once faults have stopped. */
export const CALM_ROUNDS = 2;

/** What a rank is told to do besides. */
export interface Wishes {
  /** It closes before its next round, or at once, and stays away so long. */
  away: number | undefined;
  /** It waits so long before its next round. */
  dawdle: number;
  nan: boolean;
  odd: boolean;
}

/** One rank, life after life. */
export class SimulatedRank implements Supervised {
  readonly rank: number;
  readonly wishes: Wishes = { away: undefined, dawdle: 0, nan: false, odd: false };
  host: Host | undefined;
  client: RankClient | undefined;
  readonly #world: World;
  readonly #random: Random;
  readonly #relay: string;
  #pauseMs = 0;
  #life = 0;
  #index = 0;
  /**
   * Whether its last frame did not fit those of the others. Nobody tells a rank that comes back which
   * round it enters: the one that the others are in, or the next.
   */
  #misfit = false;

  constructor(world: World, rank: number) {
    this.rank = rank;
    this.#world = world;
    this.#random = new Random(world.plan.seed, 0x7261, rank);
    const host = world.plan.hosts.findIndex((ranks) => ranks.includes(rank));
    this.#relay = formatAddress(relayAddress(host));
    world.processes.set(`rank${rank}`, this);
  }

  kill(pauseMs: number): void {
    if (this.host === undefined) return;
    this.#world.trace.note(`${this.host.name} is killed`);
    this.#pauseMs = pauseMs;
    this.host.kill();
    this.host = undefined;
    void this.client?.close();
  }

  /** Closes now, in the middle of a round if there is one. */
  leave(awayMs: number): void {
    this.wishes.away = awayMs;
    void this.client?.close();
  }

  async run(): Promise<void> {
    const world = this.#world;
    await sleep(world.plan.starts.ranks[this.rank]!);
    while (!world.closing) {
      const host = world.lan.host(`rank${this.rank}#${++this.#life}`);
      this.host = host;
      this.#pauseMs = this.#random.int(1, 200);
      await this.#live(host);
      if (this.host === host) this.host = undefined;
      host.end();
      const away = this.wishes.away ?? this.#pauseMs;
      this.wishes.away = undefined;
      if (!world.closing) await sleep(away);
    }
  }

  async #live(host: Host): Promise<void> {
    const world = this.#world;
    const client = await this.#timed("connecting", 2 * JOIN_TIMEOUT_MS, this.#connect(host));
    if (client instanceof Error) {
      return world.trace.note(`${host.name} is not let in: ${client.message}`);
    }
    if (host.dead || this.wishes.away !== undefined) return await client.close();
    this.client = client;
    this.#index = world.next + (this.#misfit ? this.#random.int(0, 1) : 0);
    this.#misfit = false;
    world.trace.note(`${host.name} is in`);
    try {
      while (!world.closing && !host.dead && this.wishes.away === undefined) {
        await sleep(this.#thinkMs() + this.wishes.dawdle);
        this.wishes.dawdle = 0;
        if (host.dead || this.wishes.away !== undefined || !await this.#round(client, host)) return;
      }
    } finally {
      this.client = undefined;
      await client.close();
    }
  }

  #thinkMs(): number {
    const { calmRounds, plan } = this.#world;
    // Who has shown that it gets on only waits for the others to do so.
    if (calmRounds[this.rank]! >= CALM_ROUNDS) return 0.7 * plan.roundDeadlineMs;
    return this.#random.int(0, plan.thinkMs);
  }

  #connect(host: Host): Promise<RankClient> {
    return RankClient.connect({
      relay: this.#relay,
      rank: this.rank,
      worldSize: this.#world.plan.worldSize,
      salt: SALT,
      wire: this.#world.plan.wires[this.rank]!,
      network: host,
      joinTimeoutMs: JOIN_TIMEOUT_MS,
      roundTimeoutMs: this.#world.plan.roundTimeoutMs,
    });
  }

  /** One round; false when the client is of no more use. */
  async #round(client: RankClient, host: Host): Promise<boolean> {
    const world = this.#world;
    const { nan, odd } = this.wishes;
    this.wishes.nan = this.wishes.odd = false;
    const attempt = world.oracle.attempt(this.rank, this.#index, { nan, odd });
    const { operation, id } = attempt;
    world.trace.note(`${host.name} sends frame ${id}: ${operation.kind}, mass ${attempt.mass}`);
    const tensors = attempt.tensors.map((tensor) => tensor.slice());
    const limit = world.plan.roundTimeoutMs;
    const began = Date.now();
    const outcome = await this.#timed(`frame ${id}`, limit, take(client, attempt, tensors));
    const ms = Date.now() - began;
    const silence = world.lan.silentSince(began) || host.silentSince(began);
    // The deadlines of relay and controller end what others hold up.
    if (!silence && ms > 2 * world.plan.roundDeadlineMs + HELD_UP_MS) {
      world.violate(`rank ${this.rank}, frame ${id}: others held it up for ${ms} ms`);
    }
    // What a dead process got nobody will ever know.
    if (host.dead) return false;
    if (outcome instanceof Error) {
      world.trace.note(`${host.name} frame ${id} fails: ${outcome.message}`);
      const absent = outcome instanceof WireError && outcome.code === "membership" &&
        outcome.scope === "frame";
      if (!absent) {
        this.#misfit = outcome.message.includes("folding the frame of");
        return false;
      }
    } else {
      world.trace.note(`${host.name} frame ${id} is done: mass ${outcome.mass}`);
      world.oracle.judge(attempt, outcome);
    }
    world.next = Math.max(world.next, ++this.#index);
    if (world.calm) world.calmRounds[this.rank]!++;
    return true;
  }

  /** Waits for the client, which must answer in time. */
  async #timed<T>(what: string, limitMs: number, promise: Promise<T>): Promise<T | Error> {
    const began = Date.now();
    const world = this.#world;
    const who = `rank ${this.rank}, ${what}`;
    const result = await promise.catch((error) => {
      world.expectOrdinary(who, error);
      return error as Error;
    });
    const ms = Date.now() - began;
    if (ms > limitMs + SLACK_MS) world.violate(`${who} took ${ms} ms, the limit is ${limitMs} ms`);
    return result;
  }
}

/** Does with the client what the attempt says. */
async function take(
  client: RankClient,
  { operation, mass, code }: Attempt,
  tensors: Float32Array[],
): Promise<Outcome> {
  if (operation.kind === "counts") {
    return { mass: 0, tensors: [await client.gatherCounts(code)] };
  }
  const result = operation.kind === "broadcast"
    ? await client.broadcast(tensors, operation.root)
    : await client.allReduce(tensors, { kind: operation.kind, mass });
  return { mass: result.mass, tensors };
}
