// A cluster of real processes: controller.ts, relay.ts and rank_main.ts as users start them. The processes
// themselves are those of the benchmarks (bench/child.ts); session.ts does without processes.
import { assertEquals, AssertionError } from "@std/assert";
import { Child } from "../../bench/child.ts";
import { matches, PATIENCE_MS, pause } from "./waiting.ts";

/** How long a process may take to start on a busy machine. */
const START_MS = 120_000;

const SALT_HEX = "9d1c4be07a52f8360ee5b3476d91c82f";

export interface ServerOptions {
  readonly salt?: string;
  readonly listen?: string;
  /** The name of a relay's host. */
  readonly host?: string;
  /** Options behind those that every start needs. */
  readonly args?: readonly string[];
  /** What it may do; the least that a program of ours needs, when left out. */
  readonly permissions?: readonly string[];
}

export const LEAST = ["--allow-net=127.0.0.1", "--allow-env=TIERFOLD_*"];

/** One process of a cluster. */
export class Member {
  readonly name: string;
  readonly child: Child;
  address = "";

  constructor(
    name: string,
    script: string,
    args: readonly string[],
    salt: string,
    permissions: readonly string[],
  ) {
    this.name = name;
    this.child = new Child({
      name,
      command: [
        Deno.execPath(),
        ...["run", "--quiet", "--no-prompt", ...permissions],
        new URL(script, import.meta.url).pathname,
        ...args,
      ],
      env: { TIERFOLD_SALT: salt, NO_COLOR: "1" },
    });
  }

  /** Waits for its line `listening HOST:PORT`. */
  async listens(): Promise<this> {
    this.address = await this.child.expect("listening ", START_MS);
    return this;
  }

  /** Waits until one line of its log has all of these texts. */
  async logged(...texts: (string | RegExp)[]): Promise<void> {
    const end = Date.now() + PATIENCE_MS;
    const found = () =>
      this.child.stderr.split("\n").some((line) => texts.every((text) => matches(line, text)));
    while (!found()) {
      if (Date.now() > end) {
        throw new AssertionError(
          `${this.name} did not log ${texts.join(", ")}; it wrote\n${this.child.stderr}`,
        );
      }
      await pause(20);
    }
  }

  signal(signal: Deno.Signal): void {
    this.child.kill(signal);
  }

  /** Waits for its end, and checks its exit code. */
  async ends(code: number, ms = PATIENCE_MS): Promise<void> {
    const got = await this.child.finish(ms);
    assertEquals(got, code, `${this.name} ended with ${got}; it wrote\n${this.child.stderr}`);
  }
}

/** A process with one or more ranks, which does as it is told; see rank_main.ts. */
export class Ranks extends Member {
  /** Tells it something. */
  tell(command: Record<string, unknown>): Promise<void> {
    return this.child.send(JSON.stringify(command));
  }

  /** Waits until it has done what it was told; fails when it could not. */
  async done<T = unknown>(): Promise<T> {
    const answer = await this.child.expect("", PATIENCE_MS);
    if (!answer.startsWith("done ")) throw new AssertionError(`${this.name}: ${answer}`);
    return JSON.parse(answer.slice("done ".length));
  }

  /** Waits until it could not do what it was told, which ends it; checks what it says. */
  async failed(...texts: (string | RegExp)[]): Promise<void> {
    const answer = await this.child.expect("", PATIENCE_MS);
    for (const text of ["failed ", ...texts]) {
      if (!matches(answer, text)) {
        throw new AssertionError(`${this.name}: "${answer}", not ${text}`);
      }
    }
    await this.ends(1);
  }

  /** Starts a round, the values and masses in the order of its ranks. */
  begin(values: readonly (readonly number[])[], masses = values.map(() => 1)): Promise<void> {
    return this.tell({ act: "round", values, masses });
  }

  /** What a round came to. */
  round(): Promise<{ masses: number[]; values: number[][] }> {
    return this.done();
  }
}

/** All processes of one test; at the end of an `await using` block none is left. */
export class Cluster implements AsyncDisposable {
  readonly relays: Member[] = [];
  readonly #members: Member[] = [];
  readonly #hosts: readonly (readonly number[])[];
  readonly #worldSize: number;
  #controller: Member | undefined;

  private constructor(hosts: readonly (readonly number[])[]) {
    this.#hosts = hosts;
    this.#worldSize = hosts.flat().length;
  }

  /** Starts a controller and a relay per host. */
  static async start(
    hosts: readonly (readonly number[])[],
    controller: ServerOptions = {},
    relays: Readonly<Record<number, ServerOptions>> = {},
  ): Promise<Cluster> {
    const cluster = new Cluster(hosts);
    try {
      cluster.#controller = cluster.server("controller", "../../controller.ts", [], controller);
      await cluster.#controller.listens();
      for (let host = 0; host < hosts.length; host++) cluster.startRelay(host, relays[host]);
      await Promise.all(cluster.relays.map((relay) => relay.listens()));
      return cluster;
    } catch (error) {
      await cluster[Symbol.asyncDispose]();
      throw error;
    }
  }

  get controller(): Member {
    return this.#controller!;
  }

  /** Starts the controller again, at the address that it had. */
  async restartController(options: ServerOptions = {}): Promise<Member> {
    const listen = this.controller.address;
    await this.controller.child.finish(PATIENCE_MS);
    this.#controller = this.server("controller", "../../controller.ts", [], { ...options, listen });
    return await this.#controller.listens();
  }

  /** Starts a program of ours. */
  server(
    name: string,
    script: string,
    args: readonly string[],
    { salt = SALT_HEX, listen = "127.0.0.1:0", args: more = [], permissions = LEAST }:
      ServerOptions = {},
  ): Member {
    const all = ["--listen", listen, "--world-size", `${this.#worldSize}`, ...args, ...more];
    const member = new Member(name, script, all, salt, permissions);
    this.#members.push(member);
    return member;
  }

  /** Starts the relay of a host. */
  startRelay(host: number, options?: ServerOptions): Member {
    const name = options?.host ?? `host-${host}`;
    const args = ["--host", name, "--ranks", this.#hosts[host]!.join(",")];
    args.push("--controller", this.controller.address);
    return this.relays[host] = this.server(`relay ${host}`, "../../relay.ts", args, options);
  }

  /** Starts one process with these ranks of one host and waits until they are connected. */
  async ranks(ranks: readonly number[], options: RankPlan = {}): Promise<Ranks> {
    const process = this.startRanks(ranks, options);
    assertEquals(await process.done(), "connected");
    return process;
  }

  /** Starts one process with these ranks of one host. */
  startRanks(ranks: readonly number[], { raw = false, salt = SALT_HEX, worldSize }: RankPlan = {}) {
    const host = this.#hosts.findIndex((all) => all.includes(ranks[0]!));
    const places = ranks.map((rank) => `${rank}@${this.relays[host]!.address}`);
    const args = [raw ? "raw" : "client", `${worldSize ?? this.#worldSize}`, ...places];
    const process = new Ranks(`ranks ${ranks}`, "./rank_main.ts", args, salt, [
      ...LEAST,
      "--allow-read",
    ]);
    this.#members.push(process);
    return process;
  }

  /** Closes these ranks and waits until everything has ended well. */
  async finish(ranks: readonly Ranks[], relays: readonly Member[] = this.relays): Promise<void> {
    await Promise.all(ranks.map((process) => process.tell({ act: "close" })));
    await Promise.all([...ranks, ...relays, this.controller].map((member) => member.ends(0)));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const { child } of this.#members) child.kill("SIGKILL");
    await Promise.all(this.#members.map(({ child }) => child.finish()));
  }
}

export interface RankPlan {
  /** Whether they speak the wire by hand. */
  readonly raw?: boolean;
  readonly salt?: string;
  readonly worldSize?: number;
}
