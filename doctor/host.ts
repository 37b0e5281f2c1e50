/**
 * Looks at this host: versions, limits, ports.
 *
 * @module
 */
import { formatHostPort, type HostPort } from "../cli/values.ts";
import { COMMIT, VERSION } from "../cli/version.ts";
import { TransportError } from "../transport/connection.ts";
import { tcp } from "../transport/network.ts";
import { amiss, type Finding, ok } from "./finding.ts";

/** The Deno that the tests run on. */
const TESTED_DENO = [2, 9, 6] as const;

/** Tierfold, Deno and the system by version. */
export function checkVersions(deno: string = Deno.version.deno): Finding[] {
  const { os, arch } = Deno.build;
  const commit = COMMIT === undefined ? "a working tree" : `commit ${COMMIT.slice(0, 12)}`;
  const found = `Tierfold ${VERSION} (${commit}), Deno ${deno}, ${os} ${arch}`;
  const wanted = TESTED_DENO.join(".");
  if (!atLeast(deno, TESTED_DENO)) {
    return [
      amiss("versions", "warning", `${found}; tested with Deno ${wanted} and up`, "deno upgrade"),
    ];
  }
  return [ok("versions", found)];
}

function atLeast(version: string, wanted: readonly number[]): boolean {
  const parts = version.split(/[.+-]/).map(Number);
  for (const [i, least] of wanted.entries()) {
    const part = parts[i] ?? 0;
    if (part !== least) return part > least;
  }
  return true;
}

/** Files that a process has open besides its peers, generously. */
const OWN_FILES = 64;

/** Whether the limit of open files leaves room for a connection of every rank. */
export async function checkOpenFiles(worldSize: number | undefined): Promise<Finding[]> {
  const check = "open files";
  if (Deno.build.os === "windows") return [ok(check, "Windows sets no limit")];
  const permission = await Deno.permissions.query({ name: "run", command: "sh" });
  if (permission.state !== "granted") {
    return [amiss(check, "skipped", "asking sh for the limit is not permitted", "--allow-run=sh")];
  }
  // A child has the limit that Deno gave itself, which is as high as it may.
  const { stdout } = await new Deno.Command("sh", { args: ["-c", "ulimit -n"] }).output();
  const text = new TextDecoder().decode(stdout).trim();
  const limit = text === "unlimited" ? Infinity : Number(text);
  const needed = (worldSize ?? 0) + OWN_FILES;
  if (limit >= needed) return [ok(check, `${text} may be open, at most ${needed} are needed`)];
  return [
    amiss(
      check,
      "problem",
      `${text} may be open, but a connection a rank needs up to ${needed}`,
      `raise it: ulimit -Hn ${needed}, LimitNOFILE=${needed} in a systemd unit`,
    ),
  ];
}

/** Whether an address of this host can be listened on. */
export function checkPort(check: string, address: HostPort): Finding {
  const where = formatHostPort(address);
  try {
    tcp.listen(address).close();
    return ok(check, `${where} can be listened on`);
  } catch (error) {
    if (!(error instanceof TransportError || error instanceof Deno.errors.NotCapable)) throw error;
    return amiss(check, "problem", error.message, portAdvice(error.cause ?? error, address));
  }
}

function portAdvice(cause: unknown, { hostname, port }: HostPort): string {
  if (cause instanceof Deno.errors.AddrInUse) {
    return `ss -ltnp 'sport = :${port}' names the process that holds it`;
  }
  if (cause instanceof Deno.errors.NotCapable) return "run with --allow-net";
  if (cause instanceof Deno.errors.PermissionDenied) {
    return "take a port from 1024 on, or give the process CAP_NET_BIND_SERVICE";
  }
  return `give an address of this host (ip addr lists them), or 0.0.0.0 for all, not ${hostname}`;
}
