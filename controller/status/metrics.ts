/**
 * A controller's metrics, for Prometheus.
 *
 * @module
 */
import { Counter, Gauge, Histogram, Registry } from "prom-client";
import { ROUND_SECONDS_BUCKETS } from "../../observe/metrics.ts";
import type { MetricsSource } from "../../observe/routes.ts";
import type { RankPhase, StateDocument } from "../../observe/state.ts";
import type { SessionView } from "./session_view.ts";

/** What a scrape reads; everything but the lists that grow. */
type Fields = ReturnType<SessionView["fields"]>;

/** A single number of the state, by the metric that shows it. */
interface Reading {
  readonly name: string;
  readonly help: string;
  readonly read: (fields: Fields) => number;
}

const COUNTERS: readonly Reading[] = [
  {
    name: "tierfold_bytes_received_total",
    help: "Bytes of frames accepted from relays, framing included.",
    read: ({ totals }) => totals.bytesIn,
  },
  {
    name: "tierfold_bytes_sent_total",
    help: "Bytes of results sent to relays, framing included.",
    read: ({ totals }) => totals.bytesOut,
  },
  {
    name: "tierfold_refusals_total",
    help: "Connections refused or ended for what they sent.",
    read: ({ totals }) => totals.refusals,
  },
  {
    name: "tierfold_rank_deaths_total",
    help: "Ranks lost: with their relay, too late, or never there.",
    read: ({ totals }) => totals.deaths,
  },
  {
    name: "tierfold_rank_returns_total",
    help: "Ranks that came back.",
    read: ({ totals }) => totals.returns,
  },
  {
    name: "tierfold_late_ranks_total",
    help: "Ranks given up because their host missed a round's deadline.",
    read: ({ totals }) => totals.late,
  },
];

const GAUGES: readonly Reading[] = [
  {
    name: "tierfold_start_time_seconds",
    help: "When the controller started, in seconds since 1970.",
    read: ({ startedAtMs }) => startedAtMs / 1000,
  },
  {
    name: "tierfold_ready",
    help: "1 when rounds can run, as /readyz says.",
    read: ({ ready }) => Number(ready),
  },
  {
    name: "tierfold_world_size",
    help: "Ranks that the session is made for.",
    read: ({ worldSize }) => worldSize,
  },
  {
    name: "tierfold_hosts",
    help: "Relays that are connected.",
    read: ({ hosts }) => hosts.filter(({ connected }) => connected).length,
  },
  {
    name: "tierfold_round",
    help: "The number of the round that is gathering.",
    read: ({ gathering }) => gathering.round,
  },
  {
    name: "tierfold_round_open_seconds",
    help: "For how long the round that is gathering has had bytes; 0 before its first one.",
    read: ({ gathering, nowMs }) =>
      gathering.startedAtMs === null ? 0 : (nowMs - gathering.startedAtMs) / 1000,
  },
  {
    name: "tierfold_round_deadline_seconds",
    help: "How long a Model round waits after its first frame.",
    read: ({ deadline }) => deadline.nowMs / 1000,
  },
  {
    name: "tierfold_resident_memory_bytes",
    help: "Memory of the controller's process.",
    read: () => Deno.memoryUsage().rss,
  },
];

const PHASES: readonly RankPhase[] = ["expected", "live", "left", "lost"];

/** Makes the metrics of a session; they follow `view` from here on. */
export function controllerMetrics(view: SessionView): MetricsSource {
  const registry = new Registry();
  const registers = [registry];
  let fields = view.fields();
  for (const { name, help, read } of COUNTERS) {
    new Counter({
      name,
      help,
      registers,
      collect() {
        this.reset();
        this.inc(read(fields));
      },
    });
  }
  for (const { name, help, read } of GAUGES) {
    new Gauge({
      name,
      help,
      registers,
      collect() {
        this.set(read(fields));
      },
    });
  }
  const labelled = (
    name: string,
    help: string,
    labelNames: readonly string[],
    read: (fields: Fields) => readonly (readonly [Record<string, string>, number])[],
  ) =>
    new Gauge({
      name,
      help,
      labelNames,
      registers,
      collect() {
        this.reset();
        for (const [labels, value] of read(fields)) this.set(labels, value);
      },
    });
  labelled(
    "tierfold_info",
    "1; the labels say what runs.",
    ["version", "session", "kernel"],
    ({ version, session, kernel }) => [[{ version, session, kernel }, 1]],
  );
  labelled(
    "tierfold_ranks",
    "Ranks, by where they stand.",
    ["phase"],
    ({ ranks }) =>
      PHASES.map((phase) => [{ phase }, ranks.filter((rank) => rank.phase === phase).length]),
  );
  labelled(
    "tierfold_loss",
    "The last loss that a rank reported.",
    ["rank"],
    ({ ranks }) =>
      ranks.flatMap(({ rank, loss }) => loss === null ? [] : [[{ rank: `${rank}` }, loss]]),
  );
  labelled("tierfold_passes", "Federated passes held, by where they stand.", ["phase"], passes);
  labelled(
    "tierfold_delta_peers",
    "Peers of the delta publisher, by their connection.",
    ["state"],
    deltaPeers,
  );
  labelled(
    "tierfold_delta_fragments_dropped",
    "Fragments dropped since the start because a peer's queue was full.",
    ["peer"],
    ({ deltas }) => (deltas ?? []).map(({ address, dropped }) => [{ peer: address }, dropped]),
  );
  labelled(
    "tierfold_step",
    "Steps of the consensus, those before a resume included; none without a state directory.",
    [],
    ({ durability }) => durability === null ? [] : [[{}, durability.step]],
  );
  labelled(
    "tierfold_checkpoint_time_seconds",
    "When the last checkpoint was on the disk, in seconds since 1970.",
    [],
    ({ durability }) =>
      durability?.checkpoint == null ? [] : [[{}, durability.checkpoint.atMs / 1000]],
  );
  labelled(
    "tierfold_checkpoint_failing",
    "1 when the last checkpoint could not be written.",
    [],
    ({ durability }) => durability === null ? [] : [[{}, Number(durability.error !== null)]],
  );
  followRounds(view, registry);
  return {
    contentType: registry.contentType,
    metrics: () => {
      fields = view.fields();
      return registry.metrics();
    },
  };
}

function followRounds(view: SessionView, registry: Registry): void {
  const registers = [registry];
  const labelNames = ["kind"] as const;
  const rounds = new Counter({
    name: "tierfold_rounds_total",
    help: "Rounds that closed.",
    labelNames,
    registers,
  });
  const seconds = new Histogram({
    name: "tierfold_round_seconds",
    help: "From a round's first byte until its result was ready.",
    labelNames,
    buckets: ROUND_SECONDS_BUCKETS,
    registers,
  });
  const lag = new Histogram({
    name: "tierfold_round_lag_seconds",
    help: "How long a round's last host arrived after its first one.",
    labelNames,
    buckets: ROUND_SECONDS_BUCKETS,
    registers,
  });
  const mass = new Gauge({
    name: "tierfold_round_mass",
    help: "Mass of the last Model round.",
    registers,
  });
  // From the start, so that a rate sees the first one.
  for (const kind of ["model", "control"]) rounds.inc({ kind }, 0);
  view.listen({
    round(round) {
      const { kind } = round;
      rounds.inc({ kind });
      seconds.observe({ kind }, round.durationMs / 1000);
      lag.observe({ kind }, round.lagMs / 1000);
      if (kind === "model") mass.set(round.mass);
    },
  });
}

function passes({ passes }: Pick<StateDocument, "passes">) {
  const phases = ["collecting", "aggregating", "complete", "failed"] as const;
  return passes === null ? [] : phases.map((phase) =>
    [
      { phase },
      passes.filter((pass) => pass.phase === phase).length,
    ] as const
  );
}

function deltaPeers({ deltas }: Pick<StateDocument, "deltas">) {
  const states = ["idle", "dialing", "open"] as const;
  return deltas === null ? [] : states.map((state) =>
    [
      { state },
      deltas.filter((peer) => peer.state === state).length,
    ] as const
  );
}
