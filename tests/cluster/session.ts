// A session in this process over real sockets: a controller, a relay per host, ranks. For what does not
// depend on processes; cluster.ts starts those.
import { AssertionError } from "@std/assert";
import { startLogging } from "../../cli/log.ts";
import {
  Controller,
  type ControllerOutcome,
  type ControllerSettings,
} from "../../controller/server.ts";
import { SimdKernel } from "../../kernels/simd.ts";
import { RankClient } from "../../rank/client.ts";
import type { RankOptions } from "../../rank/options.ts";
import { Relay } from "../../relay/server.ts";
import type { RelayOutcome, RelaySettings } from "../../relay/settings.ts";
import { type Address, formatAddress } from "../../transport/tcp.ts";
import { SESSION_SALT as SALT } from "../vectors.ts";
import { matches, PATIENCE_MS, soon } from "./waiting.ts";

export interface SessionPlan {
  /** The ranks of each host. */
  readonly hosts: readonly (readonly number[])[];
  /** Relays that are not started from the beginning, by host. */
  readonly later?: readonly number[];
  readonly worldSize?: number;
  readonly roundDeadlineMs?: number;
  readonly joinDeadlineMs?: number;
  readonly frameCeilingBytes?: number;
  /** Threads that hash, in relays and controller; none when left out. */
  readonly workers?: number;
  /** What the controller is told otherwise. */
  readonly controller?: Partial<ControllerSettings>;
  /** What one relay is told otherwise, by host. */
  readonly relays?: Readonly<Record<number, Partial<RelaySettings>>>;
}

/** One part of a session. */
export interface Part<Outcome> {
  readonly address: string;
  readonly outcome: Promise<Outcome>;
  /** Ends it, as a signal would. */
  stop(): void;
}

const LOOPBACK: Address = { hostname: "127.0.0.1", port: 0 };

/** Starts a part and waits until it listens. */
async function part<Outcome>(
  what: string,
  run: (onListening: (address: Address) => void, signal: AbortSignal) => Promise<Outcome>,
): Promise<Part<Outcome>> {
  const listening = Promise.withResolvers<Address>();
  const stop = new AbortController();
  const outcome = run(listening.resolve, stop.signal);
  outcome.catch(listening.reject);
  const address = formatAddress(await soon(`${what} listens`, listening.promise));
  return { address, outcome, stop: () => stop.abort(new Error("stopped by the test")) };
}

/** What the parts of this process log. */
export class Log implements Disposable {
  readonly lines: string[] = [];
  readonly #waiting = new Set<() => void>();
  readonly #logging: Disposable;

  constructor() {
    this.#logging = startLogging({ format: "human", level: "trace" }, {
      color: false,
      write: (line) => {
        this.lines.push(line.trimEnd());
        for (const look of this.#waiting) look();
      },
    });
  }

  /** Waits for a line that has all of these texts. */
  async has(...texts: (string | RegExp)[]): Promise<void> {
    const found = Promise.withResolvers<void>();
    const look = () => {
      if (this.lines.some((line) => texts.every((text) => matches(line, text)))) found.resolve();
    };
    this.#waiting.add(look);
    look();
    try {
      await soon(`the log has ${texts.join(", ")}`, found.promise);
    } catch (error) {
      throw new AssertionError(`${(error as Error).message}; it has\n${this.lines.join("\n")}`);
    } finally {
      this.#waiting.delete(look);
    }
  }

  [Symbol.dispose](): void {
    this.#logging[Symbol.dispose]();
  }
}

/** A running session; at the end of an `await using` block nothing of it is left. */
export class Session implements AsyncDisposable {
  readonly log = new Log();
  readonly worldSize: number;
  readonly relays: Part<RelayOutcome>[] = [];
  readonly #plan: SessionPlan;
  readonly #clients: RankClient[] = [];
  #controller: Part<ControllerOutcome> | undefined;

  private constructor(plan: SessionPlan) {
    this.#plan = plan;
    this.worldSize = plan.worldSize ?? plan.hosts.flat().length;
  }

  static async start(plan: SessionPlan): Promise<Session> {
    const session = new Session(plan);
    try {
      await session.#startController();
      for (let host = 0; host < plan.hosts.length; host++) {
        if (!plan.later?.includes(host)) await session.startRelay(host);
      }
      return session;
    } catch (error) {
      await session[Symbol.asyncDispose]();
      throw error;
    }
  }

  get controller(): Part<ControllerOutcome> {
    return this.#controller!;
  }

  /** Starts the relay of a host, for the first time or again. */
  async startRelay(
    host: number,
    settings: Partial<RelaySettings> = {},
  ): Promise<Part<RelayOutcome>> {
    const [hostname, port] = this.controller.address.split(":");
    const relay = await part(`the relay of host ${host}`, (onListening, signal) =>
      Relay.run({
        ...this.#common(),
        host: `host-${host}`,
        ranks: this.#plan.hosts[host]!,
        controller: { hostname: hostname!, port: Number(port) },
        connectDeadlineMs: PATIENCE_MS,
        onListening,
        ...this.#plan.relays?.[host],
        ...settings,
      }, signal));
    this.relays[host] = relay;
    return relay;
  }

  /** The address of a rank's relay. */
  relayOf(rank: number): string {
    return this.relays[this.#plan.hosts.findIndex((ranks) => ranks.includes(rank))]!.address;
  }

  /** Connects a rank. */
  async rank(rank: number, options: Partial<RankOptions> = {}): Promise<RankClient> {
    const client = await RankClient.connect({
      relay: options.relay ?? this.relayOf(rank),
      rank,
      worldSize: this.worldSize,
      salt: SALT,
      joinTimeoutMs: PATIENCE_MS,
      roundTimeoutMs: PATIENCE_MS,
      ...options,
    });
    this.#clients.push(client);
    return client;
  }

  /** Connects ranks; all of the session when none is named. */
  ranks(...ranks: number[]): Promise<RankClient[]> {
    const wanted = ranks.length > 0 ? ranks : this.#plan.hosts.flat().sort((a, b) => a - b);
    return Promise.all(wanted.map((rank) => this.rank(rank)));
  }

  /** Closes every rank and waits until controller and relays have ended well. */
  async finish(): Promise<{ controller: ControllerOutcome; relays: RelayOutcome[] }> {
    await Promise.all(this.#clients.map((client) => client.close()));
    const relays = await soon(
      "the relays end",
      Promise.all(this.relays.map(({ outcome }) => outcome)),
    );
    const controller = await soon("the controller ends", this.controller.outcome);
    return { controller, relays };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all(this.#clients.map((client) => client.close()));
    const parts = [...this.relays, this.#controller].filter((part) => part !== undefined);
    for (const part of parts) part.stop();
    await soon("everything ends", Promise.allSettled(parts.map(({ outcome }) => outcome)));
    this.log[Symbol.dispose]();
  }

  async #startController(): Promise<void> {
    this.#controller = await part(
      "the controller",
      (onListening, signal) =>
        Controller.run(
          { ...this.#common(), onListening, ...this.#plan.controller },
          signal,
        ),
    );
  }

  #common() {
    const { roundDeadlineMs = PATIENCE_MS, joinDeadlineMs = PATIENCE_MS } = this.#plan;
    return {
      worldSize: this.worldSize,
      listen: LOOPBACK,
      salt: SALT,
      frameCeilingBytes: this.#plan.frameCeilingBytes ?? 64 * 1024 ** 2,
      workers: this.#plan.workers ?? 0,
      joinDeadlineMs,
      roundDeadlineMs,
      kernel: (arena: Parameters<typeof SimdKernel.create>[0]) =>
        Promise.resolve(SimdKernel.create(arena)),
    };
  }
}

/** One Model round of all these clients at once; the values are replaced by the average. */
export async function average(
  clients: readonly RankClient[],
  values: readonly Float32Array[],
  masses: readonly number[],
): Promise<number[]> {
  const results = await soon(
    "the round",
    Promise.all(
      clients.map((client, i) => client.allReduce([values[i]!], { mass: masses[i]! })),
    ),
  );
  return results.map(({ mass }) => mass);
}
