/**
 * A small network on one machine: a Linux network namespace per host, joined by veth links and one
 * bridge, with both ends of every link shaped by a token bucket. Needs root and Debian's iproute2.
 *
 *     host 0            host 1            host n
 *     eth0 (tbf)        eth0 (tbf)        eth0 (tbf)
 *      | veth            | veth            | veth
 *     p0 (tbf) -------- p1 (tbf) -------- pn (tbf)      bridge br0 in a namespace of its own
 *
 * Everything lives in namespaces named after our process id, so nothing of the machine's own network
 * is touched, and what a killed bench left behind is found and removed by the next one. Commands run
 * synchronously: the network must also go away from within a signal handler.
 *
 * @module
 */

import { succeeds } from "./child.ts";

/** Start of the names of our namespaces; our process id and a name follow. */
const PREFIX = "tfbench";

/** How long a packet may wait in a link's queue before it is dropped: about a switch's buffers. */
const QUEUE_MS = 50;

/** Bytes of Ethernet, IPv4 and TCP (with timestamps) headers that a counted packet carries. */
export const HEADER_BYTES: number = 14 + 20 + 32;

/** Traffic of a host's interface since it came up. */
export interface Counters {
  /** Bytes sent, headers included. */
  txBytes: number;
  /** Packets sent, as the interface sees them: one header each, even when segmented later. */
  txPackets: number;
  /** Bytes received, headers included. */
  rxBytes: number;
  /** Packets received. */
  rxPackets: number;
}

/** One host of the network. */
export interface NetHost {
  /** Its IPv4 address. */
  address: string;
  /** What to put before a command that shall run on it. */
  prefix: readonly string[];
}

/** Why no network can be made here, or nothing. */
export async function networkUnavailable(): Promise<string | undefined> {
  if (Deno.build.os !== "linux" || Deno.uid() !== 0) return "network namespaces need root on Linux";
  for (const tool of ["ip", "tc"]) {
    if (!await succeeds([tool, "-V"])) return `no ${tool} (Debian: iproute2)`;
  }
  const name = `${PREFIX}-${Deno.pid}-try`;
  if (!await succeeds(["ip", "netns", "add", name])) return "ip netns add is refused here";
  run("ip", "netns", "del", name);
  return undefined;
}

/** The namespaces, until {@link Network.remove}. */
export class Network {
  /** The hosts, in the order of their addresses. */
  readonly hosts: readonly NetHost[];
  readonly #names: string[] = [];

  /**
   * Builds the network.
   *
   * @param hosts How many hosts.
   * @param bitsPerSecond The speed of every link, in each direction.
   * @param exactHeaders Switches off selective acknowledgements, whose options make headers longer than
   *     {@link HEADER_BYTES}, and the asking for addresses: for counting bytes, not for measuring time.
   * @throws {Error} When a command fails; what was made before is removed.
   */
  constructor(hosts: number, bitsPerSecond: number, exactHeaders = false) {
    removeStale();
    try {
      const bridge = this.#add("switch");
      run("ip", "-n", bridge, "link", "add", "br0", "type", "bridge");
      run("ip", "-n", bridge, "link", "set", "br0", "up");
      this.hosts = Array.from(
        { length: hosts },
        (_, index) => this.#addHost(bridge, index, bitsPerSecond),
      );
      if (exactHeaders) this.#quieten();
    } catch (error) {
      this.remove();
      throw error;
    }
  }

  /** Leaves nothing on the links but TCP segments with the same headers. */
  #quieten(): void {
    for (const [index, { prefix: [ip = "", ...args] }] of this.hosts.entries()) {
      run(ip, ...args, "sh", "-c", "echo 0 > /proc/sys/net/ipv4/tcp_sack");
      this.hosts.forEach(({ address }, other) => {
        if (other === index) return;
        const mac = macOf(other);
        run(ip, ...args, "ip", "neigh", "replace", address, "lladdr", mac, "dev", "eth0");
      });
    }
  }

  #add(name: string): string {
    const full = `${PREFIX}-${Deno.pid}-${name}`;
    run("ip", "netns", "add", full);
    this.#names.push(full);
    // IPv6 would announce itself on the links while bytes are counted.
    const quiet = "echo 1 > /proc/sys/net/ipv6/conf/all/disable_ipv6; " +
      "echo 1 > /proc/sys/net/ipv6/conf/default/disable_ipv6";
    run("ip", "netns", "exec", full, "sh", "-c", `[ ! -d /proc/sys/net/ipv6 ] || { ${quiet}; }`);
    return full;
  }

  #addHost(bridge: string, index: number, bitsPerSecond: number): NetHost {
    const name = this.#add(`h${index}`);
    const port = `p${index}`;
    const address = `10.77.0.${index + 1}`;
    const peer = ["peer", "name", port, "netns", bridge];
    const link = ["link", "add", "eth0", "netns", name, "address", macOf(index)];
    run("ip", ...link, "type", "veth", ...peer);
    run("ip", "-n", name, "addr", "add", `${address}/24`, "dev", "eth0");
    run("ip", "-n", bridge, "link", "set", port, "master", "br0");
    for (const [namespace, device] of [[name, "lo"], [name, "eth0"], [bridge, port]] as const) {
      run("ip", "-n", namespace, "link", "set", device, "up");
    }
    shape(name, "eth0", bitsPerSecond);
    shape(bridge, port, bitsPerSecond);
    return { address, prefix: ["ip", "netns", "exec", name] };
  }

  /** The counters of a host's interface. */
  counters(host: number): Counters {
    const name = `${PREFIX}-${Deno.pid}-h${host}`;
    const [link] = JSON.parse(run("ip", "-n", name, "-j", "-s", "link", "show", "dev", "eth0"));
    const { rx, tx } = link.stats64;
    return {
      txBytes: tx.bytes,
      txPackets: tx.packets,
      rxBytes: rx.bytes,
      rxPackets: rx.packets,
    };
  }

  /** Removes every namespace, links and queues with them. The processes in them must have ended. */
  remove(): void {
    for (const name of this.#names.splice(0)) {
      new Deno.Command("ip", { args: ["netns", "del", name], stderr: "null" }).outputSync();
    }
  }
}

/**
 * Limits what a device sends. A burst of one millisecond, at least 16 KiB, lets the bucket reach its
 * rate without letting more than the smallest frames escape it.
 */
function shape(namespace: string, device: string, bitsPerSecond: number): void {
  const burst = Math.max(16 * 1024, Math.round(bitsPerSecond / 8 / 1000));
  const limits = ["burst", `${burst}b`, "latency", `${QUEUE_MS}ms`];
  const rate = ["rate", `${bitsPerSecond}bit`];
  run("tc", "-n", namespace, "qdisc", "add", "dev", device, "root", "tbf", ...rate, ...limits);
}

/** Removes namespaces of benches that were killed before they could. */
function removeStale(): void {
  for (const line of run("ip", "netns", "list").split("\n")) {
    const match = new RegExp(`^(${PREFIX}-(\\d+)-\\S+)`).exec(line);
    if (match === null || isAlive(Number(match[2]))) continue;
    run("ip", "netns", "del", match[1] as string);
  }
}

function isAlive(pid: number): boolean {
  try {
    return Deno.statSync(`/proc/${pid}`).isDirectory;
  } catch {
    return false;
  }
}

/** The hardware address of a host: one of those that anybody may give out. */
function macOf(host: number): string {
  return `02:00:0a:4d:00:${(host + 1).toString(16).padStart(2, "0")}`;
}

/** Runs a command and returns its output. */
function run(program: string, ...args: string[]): string {
  const { success, stdout, stderr } = new Deno.Command(program, { args }).outputSync();
  const text = (bytes: Uint8Array) => new TextDecoder().decode(bytes);
  if (!success) {
    throw new Error(`bench: "${program} ${args.join(" ")}" failed: ${text(stderr).trim()}`);
  }
  return text(stdout);
}
