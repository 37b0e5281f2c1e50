/**
 * Measures rounds across the hosts of a {@link Network}.
 *
 * @module
 */

import { ringBoundMs, starBoundMs } from "./bound.ts";
import type { Cluster } from "./cluster.ts";
import { startCluster } from "./cluster.ts";
import type { Observer, RoundPlan, Sample, Session } from "./contender.ts";
import { openGloo } from "./contenders/gloo.ts";
import { median, quantile, significant } from "./figures.ts";
import type { HostsName, HostsRow, UplinkRow } from "./hosts_figures.ts";
import type { Counters } from "./netns.ts";
import { HEADER_BYTES, Network } from "./netns.ts";

/** One network and what to measure on it. */
export interface HostsPlan {
  /** Hosts with ranks; one more is made for the controller. */
  hosts: number;
  /** Ranks of each. */
  ranksPerHost: number;
  /** Speed of every link, in bits per second. */
  bitsPerSecond: number;
  /** f32 bytes per rank, ascending. */
  sizes: readonly number[];
  /** Interleaved runs of every row. */
  runs: number;
  /** Who takes part. */
  names: readonly HostsName[];
  /** The most seconds that the star's bound may sum up to in one run of one size. */
  secondsPerRun: number;
}

/** Called with the network while it stands, so that a signal handler can remove it. */
export type Watch = (network: Network | undefined) => void;

/** Rounds of one run: enough for a median, fewer where the link makes a round last seconds. */
export function hostsRounds(plan: HostsPlan, bytes: number): RoundPlan {
  const enough = bytes <= 64 * 1024 ? 200 : bytes <= 1024 ** 2 ? 30 : 11;
  const boundMs = starBoundMs(plan.hosts, bytes, plan.bitsPerSecond);
  const fit = Math.floor(plan.secondsPerRun * 1e3 / boundMs) - 2;
  const rounds = Math.min(enough, Math.max(3, fit));
  return { bytes, warm: rounds < 9 ? 1 : enough > 100 ? 300 : 2, rounds };
}

/** Measures every size of the plan, the contenders interleaved, all in the same namespaces. */
export async function measureHosts(
  plan: HostsPlan,
  watch: Watch,
  progress: (line: string) => void,
): Promise<HostsRow[]> {
  const network = new Network(plan.hosts + 1, plan.bitsPerSecond);
  watch(network);
  const sessions: [HostsName, Session][] = [];
  const rows: HostsRow[] = [];
  try {
    for (const name of plan.names) sessions.push([name, await open(name, plan, network)]);
    for (const bytes of plan.sizes) {
      const found = new Map<HostsName, { sample: Sample; traffic: Counters }[]>();
      const rounds = hostsRounds(plan, bytes);
      for (let run = 0; run < plan.runs; run++) {
        for (const [name, session] of sessions) {
          const meter = new Meter(network, plan.hosts - 1);
          const sample = await session.run(rounds, meter);
          const traffic = meter.perRound(rounds.rounds + 1);
          found.set(name, [...found.get(name) ?? [], { sample, traffic }]);
          progress(
            `${plan.hosts} hosts, run ${run + 1}, ${name}, ${bytes} bytes: ` +
              `${median(sample.ms).toPrecision(4)} ms`,
          );
        }
      }
      for (const [name, samples] of found) rows.push(row(name, plan, rounds, samples));
    }
    return rows;
  } finally {
    await Promise.allSettled(sessions.map(([, session]) => session.close()));
    network.remove();
    watch(undefined);
  }
}

/** Measures what one of two hosts sends and receives per round, for several numbers of ranks. */
export async function measureUplink(
  ranksPerHost: readonly number[],
  rounds: RoundPlan,
  watch: Watch,
): Promise<UplinkRow[]> {
  const network = new Network(3, 1e9, true);
  watch(network);
  const rows: UplinkRow[] = [];
  try {
    for (const ranks of ranksPerHost) {
      const cluster = await openTierfold(network, 2, ranks, 2);
      try {
        const meter = new Meter(network, 1);
        await cluster.run(rounds, meter);
        const traffic = meter.perRound(rounds.rounds + 1);
        rows.push({
          ranks_per_host: ranks,
          bytes: rounds.bytes,
          uplink_bytes: payload(traffic.txBytes, traffic.txPackets),
          downlink_bytes: payload(traffic.rxBytes, traffic.rxPackets),
          uplink_raw_bytes: Math.round(traffic.txBytes),
          downlink_raw_bytes: Math.round(traffic.rxBytes),
        });
      } finally {
        await cluster.close();
      }
    }
    return rows;
  } finally {
    network.remove();
    watch(undefined);
  }
}

/** Reads a host's counters around the measured rounds. */
class Meter implements Observer {
  readonly #network: Network;
  readonly #host: number;
  #before: Counters | undefined;
  #after: Counters | undefined;

  constructor(network: Network, host: number) {
    this.#network = network;
    this.#host = host;
  }

  begin(): void {
    this.#before = this.#network.counters(this.#host);
  }

  end(): void {
    this.#after = this.#network.counters(this.#host);
  }

  /** The traffic between begin and end, divided by so many rounds. */
  perRound(rounds: number): Counters {
    const per = (key: keyof Counters) =>
      ((this.#after?.[key] ?? NaN) - (this.#before?.[key] ?? NaN)) / rounds;
    return {
      txBytes: per("txBytes"),
      txPackets: per("txPackets"),
      rxBytes: per("rxBytes"),
      rxPackets: per("rxPackets"),
    };
  }
}

/** What is left of counted bytes without the headers: the bytes that TCP carried. */
function payload(bytes: number, packets: number): number {
  return Math.round(bytes - packets * HEADER_BYTES);
}

function openTierfold(
  network: Network,
  hosts: number,
  ranks: number,
  controllerAt: number,
): Promise<Cluster> {
  const controller = network.hosts[controllerAt];
  return startCluster({
    hosts: network.hosts.slice(0, hosts).map(({ prefix }) => ({ ranks, prefix })),
    controllerPrefix: controller?.prefix ?? [],
    controllerListen: `${controller?.address}:0`,
  });
}

async function open(name: HostsName, plan: HostsPlan, network: Network): Promise<Session> {
  if (name === "gloo") {
    const hosts = network.hosts.slice(0, plan.hosts);
    return await openGloo(
      hosts.flatMap(({ prefix }) =>
        Array.from({ length: plan.ranksPerHost }, () => ({ prefix, interfaceName: "eth0" }))
      ),
    );
  }
  const at = name === "tierfold" ? plan.hosts : 0;
  const cluster = await openTierfold(network, plan.hosts, plan.ranksPerHost, at);
  return { run: cluster.run, close: async () => void await cluster.close() };
}

function row(
  name: HostsName,
  plan: HostsPlan,
  { bytes, rounds }: RoundPlan,
  samples: readonly { sample: Sample; traffic: Counters }[],
): HostsRow {
  const ms = samples.flatMap(({ sample }) => sample.ms);
  const remote = name === "tierfold" ? plan.hosts : plan.hosts - 1;
  const bound = name === "gloo"
    ? ringBoundMs(plan.hosts * plan.ranksPerHost, bytes, plan.bitsPerSecond)
    : starBoundMs(remote, bytes, plan.bitsPerSecond);
  const traffic = (part: (counters: Counters) => number) =>
    Math.round(median(samples.map(({ traffic }) => part(traffic))));
  return {
    name,
    hosts: plan.hosts,
    ranks_per_host: plan.ranksPerHost,
    link_bit_s: plan.bitsPerSecond,
    bytes,
    median_ms: significant(median(ms)),
    p99_ms: significant(quantile(ms, 0.99)),
    run_medians_ms: samples.map(({ sample }) => significant(median(sample.ms))),
    rounds,
    bound_ms: significant(bound),
    uplink_bytes: traffic(({ txBytes, txPackets }) => payload(txBytes, txPackets)),
    downlink_bytes: traffic(({ rxBytes, rxPackets }) => payload(rxBytes, rxPackets)),
  };
}
