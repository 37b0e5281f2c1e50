/**
 * The cluster of a chaos run: a controller with a state directory, two relays, four ranks, each a process
 * that is started again whenever it ends, with proxies between them that can be cut.
 *
 *     rank -- proxy -- relay -- proxy -- controller -- state directory
 *
 * @module
 */
import { ExitCode } from "../../cli/program.ts";
import { Judge } from "./judge.ts";
import { ChaosProcess } from "./process.ts";
import { TcpProxy } from "./proxy.ts";
import type { RankLine } from "./rank.ts";
import { WORLD } from "./values.ts";

/** The ranks of each relay. */
const HOSTS = [[0, 1], [2, 3]];
/** How long a round waits for a rank: longer than any round takes when nobody is stopped. */
export const ROUND_DEADLINE_MS = 2_000;
/** How long ranks and relays that have not come yet are waited for. */
const JOIN_DEADLINE = "5s";
/** How long a relay tries to reach the controller. */
const CONNECT_DEADLINE = "60s";
/** Pause before a process is started again, in milliseconds. */
const RESTART_MS = 100;
/** How long everything may take to end, in milliseconds. */
const END_MS = 30_000;
/** What a count goes on by when its rank is started again: frames that nobody has heard of are fewer. */
const COUNT_STEP = 100;

/** Part of the cluster, by role. */
export type Role = "controller" | "relay" | "rank";

/** A round as the cluster tells of it. */
export interface ChaosRound {
  readonly rank: number;
  readonly begun: number;
  readonly ended: number;
  readonly mass: number;
}

/** What the cluster tells its owner. */
export interface ChaosEvents {
  /** A rank has heard a round's result. */
  round(round: ChaosRound): void;
  /** Something is not as it must be. */
  violation(kind: "wrong result" | "lost checkpoint" | "crash", what: string): void;
}

/** One process that is started again when it ends. */
interface Seat {
  readonly role: Role;
  readonly name: string;
  readonly start: () => ChaosProcess;
  /** What leads to it. */
  readonly doors: readonly TcpProxy[];
  process: ChaosProcess | undefined;
  /** How often it was started again. */
  restarts: number;
}

/** The running cluster. */
export class ChaosCluster implements AsyncDisposable {
  readonly #salt = crypto.getRandomValues(new Uint8Array(16)).toHex();
  readonly #events: ChaosEvents;
  readonly #judge = new Judge();
  readonly #controllerDoors: readonly TcpProxy[];
  readonly #relayDoors: readonly TcpProxy[];
  readonly #seats: readonly Seat[];
  readonly #directory: string;
  readonly #values: number;
  readonly #running = new Set<Promise<void>>();
  /** By role and number: where it listens. */
  readonly #addresses = new Map<string, string>();
  #stopping = false;
  /** Checkpoints that the controller has said to be on the disk. */
  readonly acknowledged: number[] = [];
  /** How often the controller could not write a checkpoint or its ledger. */
  failedWrites = 0;
  /** How often a rank was out of the cluster, for whatever reason. */
  outs = 0;

  /**
   * Starts everything; nothing needs to be there yet for the next to start.
   *
   * @param directory The controller's state directory.
   * @param values Values of a rank's tensor, a multiple of {@link WORLD}.
   */
  constructor(directory: string, values: number, events: ChaosEvents) {
    this.#directory = directory;
    this.#values = values;
    this.#events = events;
    // While a server does not listen, its proxies do not either, so that connections are refused.
    this.#controllerDoors = HOSTS.map(() => new TcpProxy());
    this.#relayDoors = Array.from({ length: WORLD }, () => new TcpProxy());
    const seat = (
      role: Role,
      name: string,
      start: () => ChaosProcess,
      doors: readonly TcpProxy[] = [],
    ): Seat => ({ role, name, start, doors, process: undefined, restarts: -1 });
    this.#seats = [
      seat("controller", "the controller", () => this.#controller(), this.#controllerDoors),
      ...HOSTS.map((ranks, host) => {
        const doors = ranks.map((rank) => this.#relayDoors[rank]!);
        return seat("relay", `relay ${host}`, () => this.#relay(host), doors);
      }),
      ...this.#relayDoors.map((_, rank) => seat("rank", `rank ${rank}`, () => this.#rank(rank))),
    ];
    for (const seat of this.#seats) this.#keep(this.#supervise(seat));
  }

  /** Different rounds so far. */
  get rounds(): number {
    return this.#judge.rounds;
  }

  /** How often processes of a role were started again. */
  restarts(role: Role): number {
    return this.#seats.filter((seat) => seat.role === role)
      .reduce((sum, { restarts }) => sum + Math.max(restarts, 0), 0);
  }

  /** Where strangers can knock: the doors of the servers that listen now. */
  get doors(): string[] {
    return [...this.#addresses.values()];
  }

  /** Sends a process a signal; number i of its role. */
  signal(role: Role, i: number, signal: Deno.Signal): void {
    this.#seats.filter((seat) => seat.role === role)[i]?.process?.kill(signal);
  }

  /** Ends the connection of a rank to its relay, or of a relay to the controller. */
  cut(role: "rank" | "relay", i: number): void {
    (role === "rank" ? this.#relayDoors : this.#controllerDoors)[i]?.cut();
  }

  /** The end of every process's log, for the report of a failure. */
  get logs(): string {
    return this.#seats.map(({ name, process }) => `${name}:\n${process?.log.join("\n")}`)
      .join("\n\n");
  }

  /**
   * Lets every rank end, and waits for everybody.
   *
   * @returns Who did not end in time.
   */
  async finish(): Promise<string[]> {
    this.#stopping = true;
    const all = this.#seats.flatMap(({ role, name, process }) =>
      process === undefined ? [] : [{ role, name, process }]
    );
    for (const { role, process } of all) if (role === "rank") await process.closeInput();
    const late = new Set(all.map(({ name }) => name));
    const ends = all.map(({ name, process }) => process.ended.then(() => late.delete(name)));
    const timer = Promise.withResolvers<void>();
    const handle = setTimeout(timer.resolve, END_MS);
    await Promise.race([Promise.all(ends), timer.promise]);
    clearTimeout(handle);
    return [...late];
  }

  /** Kills whatever still lives. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.#stopping = true;
    for (const { process } of this.#seats) process?.kill("SIGKILL");
    await Promise.all(this.#running);
    await Promise.all([...this.#controllerDoors, ...this.#relayDoors].map((door) => door.close()));
  }

  #keep(run: Promise<void>): void {
    this.#running.add(run);
    void run.finally(() => this.#running.delete(run));
  }

  async #supervise(seat: Seat): Promise<void> {
    while (!this.#stopping) {
      seat.restarts++;
      const process = seat.process = seat.start();
      const code = await process.ended;
      this.#addresses.delete(seat.name);
      for (const door of seat.doors) door.lead(undefined);
      // Nothing that is done to a process may end it so.
      const bug = process.log.some((line) => /InvariantError|Uncaught/.test(line));
      if (code === ExitCode.usage || code === ExitCode.failed && bug) {
        this.#events.violation(
          "crash",
          `${seat.name} ended with exit code ${code}:\n${process.log.join("\n")}`,
        );
      }
      if (!this.#stopping) await new Promise((resolve) => setTimeout(resolve, RESTART_MS));
    }
  }

  #controller(): ChaosProcess {
    const directory = this.#directory;
    const known = Math.max(0, ...this.acknowledged);
    return new ChaosProcess({
      name: "the controller",
      script: "controller.ts",
      permissions: [...LEAST, `--allow-read=${directory}`, `--allow-write=${directory}`],
      args: [
        ...["--listen", "127.0.0.1:0", "--world-size", `${WORLD}`],
        ...["--state", directory, "--resume", "--checkpoint-every", "5"],
        ...["--round-deadline", `${ROUND_DEADLINE_MS}ms`, "--join-deadline", JOIN_DEADLINE],
      ],
      salt: this.#salt,
      onLine: (line) => {
        const address = listeningAt(line);
        if (address === undefined) return;
        this.#addresses.set("the controller", address);
        for (const door of this.#controllerDoors) door.lead(address);
      },
      onLog: (line) => {
        const written = /the checkpoint of step (\d+) is on the disk/.exec(line);
        if (written !== null) this.acknowledged.push(Number(written[1]));
        if (/writing the (checkpoint|ledger)/.test(line)) this.failedWrites++;
        const resumed = /going on from step (\d+)/.exec(line)?.[1];
        const afresh = line.includes("has no checkpoint yet");
        if (resumed === undefined && !afresh) return;
        const step = Number(resumed ?? 0);
        if (step >= known) return;
        const what = `the controller goes on from step ${step}, but had written step ${known}`;
        this.#events.violation("lost checkpoint", what);
      },
    });
  }

  #relay(host: number): ChaosProcess {
    const ranks = HOSTS[host]!;
    return new ChaosProcess({
      name: `relay ${host}`,
      script: "relay.ts",
      permissions: LEAST,
      args: [
        ...["--listen", "127.0.0.1:0", "--world-size", `${WORLD}`, "--host", `host-${host}`],
        ...["--ranks", ranks.join(","), "--controller", this.#controllerDoors[host]!.address],
        ...["--round-deadline", `${ROUND_DEADLINE_MS}ms`, "--join-deadline", JOIN_DEADLINE],
        ...["--connect-deadline", CONNECT_DEADLINE],
      ],
      salt: this.#salt,
      onLine: (line) => {
        const address = listeningAt(line);
        if (address === undefined) return;
        this.#addresses.set(`relay ${host}`, address);
        for (const rank of ranks) this.#relayDoors[rank]!.lead(address);
      },
    });
  }

  #rank(rank: number): ChaosProcess {
    const first = this.#judge.highest(rank) + COUNT_STEP;
    return new ChaosProcess({
      name: `rank ${rank}`,
      script: "bench/chaos/rank.ts",
      permissions: LEAST,
      args: [`${rank}`, this.#relayDoors[rank]!.address, `${first}`, `${this.#values}`],
      salt: this.#salt,
      onLine: (line) => this.#heard(rank, JSON.parse(line)),
    });
  }

  #heard(rank: number, line: RankLine): void {
    switch (line.kind) {
      case "round": {
        const problems = this.#judge.hear({ ...line, rank });
        for (const what of problems) this.#events.violation("wrong result", what);
        const { begun, ended, mass } = line;
        return this.#events.round({ rank, begun, ended, mass });
      }
      case "wrong":
        return this.#events.violation("wrong result", `rank ${rank}: ${line.what}`);
      case "out":
        this.outs++;
        return;
      case "joined":
        return;
    }
  }
}

const LEAST = ["--allow-net=127.0.0.1", "--allow-env=TIERFOLD_*"];

function listeningAt(line: string): string | undefined {
  return line.startsWith("listening ") ? line.slice("listening ".length).trim() : undefined;
}
