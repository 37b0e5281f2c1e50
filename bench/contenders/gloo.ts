/**
 * torch gloo's all_reduce over loopback TCP, without authentication.
 *
 * @module
 */

import { Child, succeeds } from "../child.ts";
import type { Contender, Member, Session } from "../contender.ts";
import { driveMembers } from "../contender.ts";
import { makeScratch, removeScratch } from "../scratch.ts";

/** Debian's python3-torch belongs to Debian's interpreter, whatever `python3` is on the PATH. */
export const PYTHON = "/usr/bin/python3";

/** Where a gloo rank runs, and how it reaches the others. */
export interface GlooPlace {
  /** Put before the command, such as `ip netns exec NAME`. */
  prefix: readonly string[];
  /** The network interface. */
  interfaceName: string;
}

/** Resident memory of a Python process with torch loaded, in bytes, rounded up. */
const PROCESS_BYTES = 250e6;

/** Why gloo cannot be measured, or nothing. */
export async function glooUnavailable(): Promise<string | undefined> {
  const found = await succeeds([
    PYTHON,
    "-c",
    "import torch.distributed as d; assert d.is_gloo_available()",
  ]);
  return found ? undefined : `${PYTHON} has no torch with gloo (Debian: python3-torch)`;
}

/**
 * Starts one gloo rank per place and waits until the group stands.
 *
 * @throws {Error} When a rank ends or does not get ready within a minute.
 */
export async function openGloo(places: readonly GlooPlace[]): Promise<Session> {
  const folder = makeScratch("gloo");
  const script = new URL("../peers/gloo_allreduce.py", import.meta.url).pathname;
  const members: Member[] = places.map(({ prefix, interfaceName }, rank) => ({
    role: "rank",
    child: new Child({
      name: `gloo rank ${rank}`,
      command: [...prefix, PYTHON, script, String(rank), String(places.length), `${folder}/store`],
      env: { GLOO_SOCKET_IFNAME: interfaceName },
    }),
  }));
  const close = async (): Promise<void> => {
    await Promise.all(members.map(({ child }) => child.send("quit")));
    await Promise.all(members.map(({ child }) => child.finish()));
    removeScratch(folder);
  };
  try {
    await Promise.all(members.map(({ child }) => child.expect("ready", 60_000)));
  } catch (error) {
    for (const { child } of members) child.kill("SIGKILL");
    await close();
    throw error;
  }
  return { run: (plan, observer) => driveMembers(members, [], plan, observer), close };
}

/** gloo among the contenders. */
export const gloo: Contender = {
  name: "gloo",
  unavailable: glooUnavailable,
  // The fresh values, the tensor, and gloo's own segment buffers.
  memoryBytes: (ranks, bytes) => ranks * (3 * bytes + PROCESS_BYTES),
  open: (ranks) => openGloo(Array.from({ length: ranks }, () => LOOPBACK)),
};

const LOOPBACK: GlooPlace = { prefix: [], interfaceName: "lo" };
