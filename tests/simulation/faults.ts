// Carries out the faults of a plan.
import { RankClient } from "../../rank/client.ts";
import { formatAddress } from "../../transport/tcp.ts";
import type { Fault, Plan, Target } from "./plan.ts";
import type { SimulatedRank } from "./ranks.ts";
import { Random } from "./random.ts";
import { sleep } from "./virtual_time.ts";
import { CONTROLLER, nameOf, relayAddress, SALT, type World } from "./world.ts";

/** Lets things go wrong, and stops it. */
export class Faults {
  readonly #world: World;
  readonly #plan: Plan;
  readonly #ranks: readonly SimulatedRank[];
  readonly #random: Random;
  readonly #tasks: Promise<void>[] = [];

  constructor(world: World, ranks: readonly SimulatedRank[]) {
    this.#world = world;
    this.#plan = world.plan;
    this.#ranks = ranks;
    this.#random = new Random(world.plan.seed, 0x6661);
  }

  /** Returns when all has happened and is made good, as far as it will be. */
  async run(): Promise<void> {
    for (const fault of this.#plan.faults) {
      await sleep(Math.max(fault.at - Date.now(), 0));
      this.#world.trace.note(`fault: ${JSON.stringify(fault)}`);
      this.#start(fault);
    }
    await sleep(Math.max(this.#plan.calmAt - Date.now(), 0));
    await Promise.all(this.#tasks);
    for (const wire of this.#world.lan.wires) {
      // Some stay silent for good: a peer that is lost says nothing.
      if (!wire.silent || this.#random.chance(0.5)) continue;
      wire.hold(0, false);
      wire.hold(1, false);
      if (this.#random.chance(0.5)) wire.cut("faults stop");
    }
  }

  #start(fault: Fault): void {
    const world = this.#world;
    switch (fault.kind) {
      case "kill":
        return world.process(fault.target)?.kill(fault.ms);
      case "freeze":
        return this.#freeze(fault.target, fault.ms);
      case "cut": {
        const wire = this.#wire(fault.target);
        return fault.bytes === 0 ? wire?.cut("a fault") : wire?.cutAfter(fault.bytes);
      }
      case "spoil":
        return this.#wire(fault.target)?.spoil(fault.end, fault.within);
      case "silence": {
        const wire = this.#wire(fault.target);
        if (fault.end !== 1) wire?.hold(0, true);
        if (fault.end !== 0) wire?.hold(1, true);
        return;
      }
      case "leave":
        if (fault.now) this.#ranks[fault.rank]!.leave(fault.ms);
        else this.#ranks[fault.rank]!.wishes.away = fault.ms;
        return;
      case "dawdle":
        this.#ranks[fault.rank]!.wishes.dawdle = fault.ms;
        return;
      case "nan":
      case "odd":
        this.#ranks[fault.rank]!.wishes[fault.kind] = true;
        return;
      case "stranger":
        this.#tasks.push(this.#stranger(fault.target, fault.bytes, fault.ms));
        return;
      case "double":
        this.#tasks.push(this.#double(fault.rank, fault.wrongSalt));
    }
  }

  #wire(target: Target) {
    const wires = this.#world.process(target)?.host?.wires ?? [];
    return wires.length === 0 ? undefined : this.#random.pick(wires);
  }

  #freeze(target: Target, ms: number): void {
    const host = this.#world.process(target)?.host;
    if (host === undefined) return;
    host.freeze(true);
    this.#tasks.push(sleep(ms).then(() => host.freeze(false)));
  }

  async #stranger(target: Target, bytes: number, ms: number): Promise<void> {
    const host = this.#world.lan.host("stranger");
    const address = target.role === "relay" ? relayAddress(target.index) : CONTROLLER;
    try {
      const connection = await host.connect(address, nameOf(target), { deadlineMs: 100 });
      const said = Uint8Array.from({ length: bytes }, () => this.#random.int(0, 255));
      for (let at = 0; at < bytes;) at += await connection.write(said.subarray(at));
      await sleep(ms);
      connection.close();
    } catch {
      // Nobody listens, or it was thrown out: as it should be.
    } finally {
      host.kill();
    }
  }

  async #double(rank: number, wrongSalt: boolean): Promise<void> {
    const host = this.#world.lan.host(`double${rank}`);
    const index = this.#plan.hosts.findIndex((ranks) => ranks.includes(rank));
    try {
      const client = await RankClient.connect({
        relay: formatAddress(relayAddress(index)),
        rank,
        worldSize: this.#plan.worldSize,
        salt: wrongSalt ? SALT.toReversed() : SALT,
        network: host,
        joinTimeoutMs: 1_000,
        roundTimeoutMs: 1_000,
      });
      // The place was free. With the right salt it leaves it; with a wrong one its frame gives it away.
      if (wrongSalt) await client.allReduce([new Float32Array(3)], { mass: 0 }).catch(() => {});
      await client.close();
    } catch (error) {
      this.#world.expectOrdinary(host.name, error);
    } finally {
      host.kill();
    }
  }
}
