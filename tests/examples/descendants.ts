/** Which processes a process has started, from Linux's /proc. */

/** Whether this system can tell. */
export const CAN_LIST = Deno.build.os === "linux";

/** The pids of all children, their children and so on. */
export function descendants(pid: number): number[] {
  const children: number[] = [];
  for (const task of list(`/proc/${pid}/task`)) {
    children.push(
      ...read(`/proc/${pid}/task/${task}/children`).split(" ").filter(Boolean).map(Number),
    );
  }
  return children.flatMap((child) => [child, ...descendants(child)]);
}

/** The command line of a process, its parts separated by spaces; empty when it is gone. */
export function commandOf(pid: number): string {
  return read(`/proc/${pid}/cmdline`).replaceAll("\0", " ").trim();
}

/** Those of `pids` that still run. A zombie has no command line any more. */
export function alive(pids: readonly number[]): string[] {
  return pids.map((pid) => commandOf(pid)).filter((command) => command !== "");
}

function list(path: string): string[] {
  try {
    return [...Deno.readDirSync(path)].map(({ name }) => name);
  } catch {
    return [];
  }
}

function read(path: string): string {
  try {
    return Deno.readTextFileSync(path);
  } catch {
    return "";
  }
}
