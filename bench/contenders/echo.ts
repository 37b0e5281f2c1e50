/**
 * The ceiling: the same bytes through plain sockets in Deno, with no tags, no sums and no framing. R
 * rank processes send a model to one server process and get one back. The leg between relay and
 * controller is not in it.
 *
 * @module
 */

import { Child } from "../child.ts";
import type { Contender, Member, RoundPlan, Sample, Session } from "../contender.ts";
import { driveMembers } from "../contender.ts";

/** Resident memory of a Deno process without its buffers, in bytes, rounded up. */
const PROCESS_BYTES = 100e6;

const START_MS = 30_000;

/** The echo among the contenders. */
export const echo: Contender = {
  name: "echo",
  unavailable: () => Promise.resolve(undefined),
  memoryBytes: (ranks, bytes) => ranks * 3 * bytes + (ranks + 1) * PROCESS_BYTES,
  open: (ranks): Promise<Session> =>
    Promise.resolve({
      run: (plan) => run(ranks, plan),
      close: () => Promise.resolve(),
    }),
};

function script(name: string): string {
  return new URL(`../peers/${name}`, import.meta.url).pathname;
}

async function run(ranks: number, plan: RoundPlan): Promise<Sample> {
  const deno = [Deno.execPath(), "run", "--quiet", "--allow-all"];
  const members: Member[] = [];
  const start = (role: string, name: string, args: string[]): Child => {
    const child = new Child({ name: `echo ${role}`, command: [...deno, script(name), ...args] });
    members.push({ child, role });
    return child;
  };
  try {
    const server = start("server", "echo_server.ts", [String(ranks), String(plan.bytes)]);
    const address = await server.expect("listening ", START_MS);
    const clients = Array.from({ length: ranks }, () => start("rank", "echo_rank.ts", [address]));
    await Promise.all(clients.map((client) => client.expect("ready", START_MS)));
    const [served, ...driven] = members;
    const sample = await driveMembers(driven, served === undefined ? [] : [served], plan);
    await Promise.all(clients.map((client) => client.send("quit")));
    return sample;
  } catch (error) {
    for (const { child } of members) child.kill("SIGKILL");
    throw error;
  } finally {
    await Promise.all(members.map(({ child }) => child.finish()));
  }
}
