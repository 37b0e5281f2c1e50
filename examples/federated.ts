/**
 * Federated learning on one machine: clients with unequal, label-skewed shards of real digits train
 * locally and average through the controller's HTTP intake. Some are slow, one is malicious, one
 * vanishes. A replica follows the consensus through signed deltas and answers with it.
 *
 *     deno task demo:federated [--clients N] [--rounds N] [--seed N] [--wait S]
 *
 * @module
 */

import { Command } from "commander";
import type { ClientLine, Line, MaliceLine, RoundLine } from "./federated/plan.ts";
import type { Process, ProcessGroup } from "./processes.ts";
import { onStage, within } from "./stage.ts";

/** Processes for the honest clients. */
const FARMS = 3;

const LOOPBACK = "--allow-net=127.0.0.1";

interface Options {
  readonly clients: number;
  readonly rounds: number;
  readonly seed: number;
  /** Seconds that a round waits for its clients. */
  readonly wait: number;
}

/** What the processes said. */
interface Heard {
  readonly rounds: RoundLine[];
  readonly clients: ClientLine[];
  malice: MaliceLine | undefined;
  /** Processes that are ready, and whom to tell. */
  ready: number;
  onReady: () => void;
}

function parseOptions(args: readonly string[]): Options {
  return new Command("deno task demo:federated")
    .description("Trains on real digits with federated clients on this machine.")
    .option("--clients <N>", "clients, a malicious and a vanishing one included", within(6, 40), 20)
    .option("--rounds <N>", "how often to average", within(1, 1_000), 10)
    .option("--seed <N>", "decides shards, first weights and order", within(0, 1_000_000), 1)
    .option("--wait <S>", "seconds that a round waits for its clients", within(1, 600), 5)
    .allowExcessArguments(false)
    .configureOutput({ getOutHasColors: () => false, getErrHasColors: () => false })
    .parse(args, { from: "user" })
    .opts<Options>();
}

const percent = (share: number) => `${(100 * share).toFixed(1)} %`.padStart(7);

function show(line: Line, heard: Heard): void {
  switch (line.kind) {
    case "ready":
      heard.ready++;
      heard.onReady();
      break;
    case "round":
      heard.rounds.push(line);
      console.log(
        `  ${String(line.round).padStart(5)}  ${percent(line.accuracy)}    ` +
          `${percent(line.replica)}  ${String(line.received).padStart(7)}  ` +
          `${String(line.samples).padStart(7)}  ${(line.ms / 1000).toFixed(1).padStart(5)} s`,
      );
      break;
    case "failed":
      console.log(`  ${String(line.round).padStart(5)}  no consensus: ${line.reason}`);
      break;
    case "vanished":
      console.log(`         (${line.peer} vanishes in the middle of an upload)`);
      break;
    case "client":
      heard.clients.push(line);
      break;
    case "malice":
      heard.malice = line;
      break;
  }
}

/** Resolves with the address in a process's line `http HOST:PORT`. */
function httpOf(): { onLine: (line: string) => void; address: Promise<string> } {
  const { promise, resolve } = Promise.withResolvers<string>();
  const onLine = (line: string) => {
    if (line.startsWith("http ")) resolve(`http://${line.slice("http ".length).trim()}`);
  };
  return { onLine, address: promise };
}

/** Runs everything; returns the exit code. */
async function demo(group: ProcessGroup, options: Options): Promise<number> {
  const { clients, rounds, seed, wait } = options;
  const salt = crypto.getRandomValues(new Uint8Array(16)).toHex();
  const fleetKey = crypto.getRandomValues(new Uint8Array(32)).toHex();
  const heard: Heard = { rounds: [], clients: [], malice: undefined, ready: 0, onReady: () => {} };

  const replicaHttp = httpOf();
  const replica = group.start({
    name: "the replica",
    script: new URL("./replica.ts", import.meta.url),
    permissions: [LOOPBACK, "--allow-env=AXIOM_*"],
    args: [],
    env: { AXIOM_FLEET_KEY: fleetKey },
    onLine: replicaHttp.onLine,
  });
  const controllerHttp = httpOf();
  const sources = new URL("../", import.meta.url).pathname;
  const controller = group.start({
    name: "the controller",
    script: new URL("../controller.ts", import.meta.url),
    permissions: [LOOPBACK, "--allow-env=TIERFOLD_*,AXIOM_*", `--allow-read=${sources}`],
    args: ["--world-size", "0", "--http", "127.0.0.1:0"],
    env: {
      TIERFOLD_SALT: salt,
      AXIOM_FLEET_KEY: fleetKey,
      AXIOM_DWE_PEERS: await replica.listening(),
    },
    onLine: controllerHttp.onLine,
  });
  await controller.listening();
  const url = await controllerHttp.address;
  const replicaUrl = await replicaHttp.address;
  console.log(
    `The controller takes contributions at ${url}; a replica follows and answers at ${replicaUrl}.`,
  );

  const start = (name: string, script: string, rest: readonly string[]): Process =>
    group.start({
      name,
      script: new URL(`./federated/${script}`, import.meta.url),
      permissions: [LOOPBACK, "--allow-env=TIERFOLD_SALT"],
      args: [url, `${clients}`, `${rounds}`, `${seed}`, `${1000 * wait}`, ...rest],
      env: { TIERFOLD_SALT: salt },
      onLine: (line) => show(JSON.parse(line), heard),
    });
  // The smallest shards are those of the two odd ones.
  const malicious = clients - 1;
  const vanishing = clients - 2;
  const honest = Array.from({ length: clients - 2 }, (_, client) => client);
  const slow = (client: number) => client % 6 === 5;
  console.log(
    `${clients} clients: ${honest.filter(slow).length} are slow, one is malicious, one vanishes. ` +
      `Each round ends after ${wait} s with whoever came in time.\n`,
  );
  const allReady = new Promise<void>((resolve) => {
    // The honest ones, the vanishing one and the malicious one.
    heard.onReady = () => heard.ready === FARMS + 2 && resolve();
  });
  console.log("  round  consensus    replica  clients  samples     time");
  const parts = Array.from({ length: FARMS }, (_, farm) =>
    start(
      `clients ${farm}`,
      "clients.ts",
      honest.filter((client) => client % FARMS === farm)
        .map((client) => slow(client) ? `${client}:slow` : `${client}`),
    ));
  parts.push(start("the vanishing client", "clients.ts", [`${vanishing}:vanishes`]));
  parts.push(start("the malicious client", "malicious.ts", [`${malicious}`]));
  await allReady;
  parts.push(start("the lead", "lead.ts", [replicaUrl]));
  await Promise.all(parts.map(({ ended }) => ended));
  return judge(heard);
}

/** Says what came out; returns the exit code. */
function judge({ rounds, clients, malice }: Heard): number {
  const late = clients.reduce((sum, client) => sum + client.late, 0);
  const delivered = clients.reduce((sum, client) => sum + client.delivered, 0);
  console.log(`\nThe honest clients were in time ${delivered} times and too late ${late} times.`);
  console.log(
    `The malicious one tried ${malice?.attempts} times; ${malice?.accepted} attempts came through:`,
  );
  for (const [what, refusal] of Object.entries(malice?.refusals ?? {})) {
    console.log(`  ${what.padEnd(36)}${refusal}`);
  }
  const last = rounds.at(-1);
  const first = rounds[0];
  if (last === undefined || first === undefined || malice?.accepted !== 0) return 1;
  const apart = Math.max(...rounds.map(({ accuracy, replica }) => Math.abs(accuracy - replica)));
  console.log(
    `\nThe consensus names ${percent(last.accuracy).trim()} of the digits that nobody trained on ` +
      `(${
        percent(first.accuracy).trim()
      } after the first round); the replica's answers are right as ` +
      `often, within ${(100 * apart).toFixed(2)} points in every round.`,
  );
  return apart <= 0.005 ? 0 : 1;
}

if (import.meta.main) {
  const options = parseOptions(Deno.args);
  Deno.exit(await onStage((group) => demo(group, options)));
}
