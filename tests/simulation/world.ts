// One cluster in one process: controller, relays and ranks as the product has them, started again
// whenever they end, as a supervisor would.
import { Controller } from "../../controller/server.ts";
import { SimdKernel } from "../../kernels/simd.ts";
import { Relay } from "../../relay/server.ts";
import { TransportError } from "../../transport/connection.ts";
import type { Address } from "../../transport/tcp.ts";
import { WireError } from "../../wire/errors.ts";
import { type Host, Lan } from "./network.ts";
import { Oracle } from "./oracle.ts";
import type { Plan, Target } from "./plan.ts";
import { Random } from "./random.ts";
import type { Trace } from "./trace.ts";
import { sleep } from "./virtual_time.ts";

export const SALT = Uint8Array.fromHex("9d1c4be07a52f8360ee5b3476d91c82f");
const FRAME_CEILING = 64 * 1024 ** 2;
export const CONTROLLER: Address = { hostname: "10.0.1.1", port: 7070 };
export const relayAddress = (index: number): Address => ({
  hostname: `10.0.2.${index + 1}`,
  port: 7071,
});

const module = SimdKernel.compile();
const kernel = (arena: Parameters<typeof SimdKernel.create>[0]) =>
  Promise.resolve(SimdKernel.create(arena, module));

/** A process that is started again whenever it ends. */
export interface Supervised {
  /** Its present life; undefined while it is down. */
  host: Host | undefined;
  /** Ends its present life at once, without a word. */
  kill(pauseMs: number): void;
}

/** What all parts of a run share. */
export class World {
  readonly plan: Plan;
  readonly trace: Trace;
  readonly lan: Lan;
  readonly oracle: Oracle;
  readonly violations: string[] = [];
  readonly random: Random;
  /** By name. */
  readonly processes = new Map<string, Supervised>();
  /** The round that comes after the last one that any rank has finished. */
  next = 0;
  /** No more faults. */
  calm = false;
  /** Ranks close after the round they are in, and nothing is started again. */
  closing = false;
  /** Rounds finished by each rank since faults have stopped. */
  readonly calmRounds: number[];

  constructor(plan: Plan, trace: Trace) {
    this.plan = plan;
    this.trace = trace;
    this.lan = new Lan(plan.seed, plan.weather, trace);
    const life = (name: string) => this.processes.get(name)?.host?.name;
    this.oracle = new Oracle(plan, this.violations, life);
    this.random = new Random(plan.seed, 0x776f);
    this.calmRounds = Array.from({ length: plan.worldSize }, () => 0);
  }

  process(target: Target): Supervised | undefined {
    return this.processes.get(nameOf(target));
  }

  violate(text: string): void {
    this.trace.note(`VIOLATION ${text}`);
    this.violations.push(text);
  }

  /** Puts down an error that is not a peer's or the network's. */
  expectOrdinary(who: string, error: unknown): string {
    const text = error instanceof Error ? error.message : String(error);
    if (!(error instanceof TransportError || error instanceof WireError)) {
      this.violate(`${who} ended with ${error instanceof Error ? error.stack : text}`);
    }
    return text;
  }
}

export function nameOf(target: Target): string {
  return target.role === "controller" ? "controller" : `${target.role}${target.index}`;
}

/** How a server's life ended. */
type Ending = { readonly error?: unknown };

/** Runs one server, life after life, until the world closes. */
async function supervise(
  world: World,
  name: string,
  startMs: number,
  live: (host: Host, signal: AbortSignal) => Promise<unknown>,
  judge: (error: unknown, host: Host) => void,
): Promise<void> {
  let pauseMs = 0;
  let stop = new AbortController();
  const self: Supervised = {
    host: undefined,
    kill(ms) {
      if (self.host === undefined) return;
      pauseMs = ms;
      world.trace.note(`${self.host.name} is killed`);
      self.host.kill();
      self.host = undefined;
      stop.abort(new TransportError("ended", `${name} was killed`));
    },
  };
  world.processes.set(name, self);
  await sleep(startMs);
  for (let life = 1; !world.closing; life++) {
    const host = world.lan.host(`${name}#${life}`);
    stop = new AbortController();
    self.host = host;
    pauseMs = world.random.int(1, 200);
    const ending: Ending = await live(host, stop.signal).then(() => ({}), (error) => ({ error }));
    if (!host.dead) {
      self.host = undefined;
      if ("error" in ending) {
        world.trace.note(`${host.name} ends: ${world.expectOrdinary(host.name, ending.error)}`);
        judge(ending.error, host);
      } else world.trace.note(`${host.name} is done`);
      host.end();
    }
    if (!world.closing) await sleep(pauseMs);
  }
}

/** Runs the controller. */
export function runController(world: World): Promise<void> {
  const { plan } = world;
  return supervise(world, "controller", plan.starts.controller, (host, signal) =>
    Controller.run({
      worldSize: plan.worldSize,
      listen: CONTROLLER,
      salt: SALT,
      frameCeilingBytes: FRAME_CEILING,
      workers: 0,
      joinDeadlineMs: plan.joinDeadlineMs,
      roundDeadlineMs: plan.roundDeadlineMs,
      deadlineFloorMs: plan.deadlineFloorMs,
      returnDeadlineMs: plan.returnDeadlineMs,
      kernel,
      network: host,
      onListening: () => world.trace.note(`${host.name} listens`),
    }, signal), (error) => {
    // Bad input never ends it; that nobody came may.
    const text = error instanceof Error ? error.message : String(error);
    if (!text.startsWith("waiting for relays: none came")) {
      world.violate(`the controller ended: ${text}`);
    }
  });
}

/** Runs the relay of a host. */
export function runRelay(world: World, index: number): Promise<void> {
  const { plan } = world;
  return supervise(world, `relay${index}`, plan.starts.relays[index]!, (host, signal) =>
    Relay.run({
      host: `h${index}`,
      ranks: plan.hosts[index]!,
      worldSize: plan.worldSize,
      listen: relayAddress(index),
      controller: CONTROLLER,
      salt: SALT,
      frameCeilingBytes: FRAME_CEILING,
      workers: 0,
      connectDeadlineMs: 4_000,
      reconnectDeadlineMs: plan.reconnectDeadlineMs,
      joinDeadlineMs: plan.joinDeadlineMs,
      roundDeadlineMs: plan.roundDeadlineMs,
      kernel,
      ranksNetwork: host,
      controllerNetwork: host,
      onListening: () => world.trace.note(`${host.name} listens`),
    }, signal), (error, host) => {
    // A rank never ends it; that the controller is gone, or says what it must not, may.
    const text = error instanceof Error ? error.message : String(error);
    if (!/the controller|10\.0\.1\.1:7070/.test(text) && !host.spoilt.has("controller")) {
      world.violate(`relay ${index} ended: ${text}`);
    }
  });
}
