/**
 * A controller's metrics.
 *
 * @module
 */
import { byLabel, StateMetrics } from "../../observe/metrics.ts";
import type { MetricsSource } from "../../observe/routes.ts";
import type { SessionView } from "./session_view.ts";

type Fields = ReturnType<SessionView["fields"]>;

/** Makes the metrics of a session; they follow `view` from here on. */
export function controllerMetrics(view: SessionView): MetricsSource {
  const metrics = new StateMetrics(() => view.fields());
  totals(metrics);
  standing(metrics);
  beside(metrics);
  followRounds(metrics, view);
  return metrics;
}

function totals(metrics: StateMetrics<Fields>): void {
  metrics.counters([
    [
      "tierfold_bytes_received_total",
      "Bytes of frames accepted from relays, framing included.",
      ({ totals }) => totals.bytesIn,
    ],
    [
      "tierfold_bytes_sent_total",
      "Bytes of results sent to relays, framing included.",
      ({ totals }) => totals.bytesOut,
    ],
    [
      "tierfold_refusals_total",
      "Connections refused, or ended for what they sent.",
      ({ totals }) => totals.refusals,
    ],
    [
      "tierfold_rank_deaths_total",
      "Ranks lost: with their relay, too late, or never there.",
      ({ totals }) => totals.deaths,
    ],
    [
      "tierfold_rank_returns_total",
      "Ranks that came back.",
      ({ totals }) => totals.returns,
    ],
    [
      "tierfold_late_ranks_total",
      "Ranks given up because their host missed a round's deadline.",
      ({ totals }) => totals.late,
    ],
    [
      "tierfold_delta_fragments_dropped_total",
      "Fragments of weight deltas dropped because a peer's queue was full.",
      ({ deltas }) => (deltas ?? []).reduce((sum, { dropped }) => sum + dropped, 0),
    ],
  ]);
}

function standing(metrics: StateMetrics<Fields>): void {
  metrics.gauges([
    [
      "tierfold_start_time_seconds",
      "When the controller started, in seconds since 1970.",
      ({ startedAtMs }) => startedAtMs / 1000,
    ],
    ["tierfold_ready", "1 when rounds can run, as /readyz says.", ({ ready }) => Number(ready)],
    [
      "tierfold_world_size",
      "Ranks that the session is made for.",
      ({ worldSize }) => worldSize,
    ],
    [
      "tierfold_hosts",
      "Relays that are connected.",
      ({ hosts }) => hosts.filter(({ connected }) => connected).length,
    ],
    [
      "tierfold_round",
      "The number of the round that is gathering.",
      ({ gathering }) => gathering.round,
    ],
    [
      "tierfold_round_open_seconds",
      "For how long the round that is gathering has had bytes; 0 before its first one.",
      ({ gathering, nowMs }) =>
        gathering.startedAtMs === null ? 0 : (nowMs - gathering.startedAtMs) / 1000,
    ],
    [
      "tierfold_round_deadline_seconds",
      "How long a Model round waits after its first frame.",
      ({ deadline }) => deadline.nowMs / 1000,
    ],
    [
      "tierfold_resident_memory_bytes",
      "Memory of the controller's process.",
      () => Deno.memoryUsage().rss,
    ],
  ])
    .labelled(
      "tierfold_info",
      "1; the labels say what runs.",
      ["version", "session", "kernel"],
      ({ version, session, kernel }) => [[{ version, session, kernel }, 1]],
    )
    .labelled(
      "tierfold_ranks",
      "Ranks, by where they stand.",
      ["phase"],
      ({ ranks }) => byLabel("phase", ["expected", "live", "left", "lost"], ranks),
    )
    .labelled(
      "tierfold_loss",
      "The last loss that a rank reported.",
      ["rank"],
      ({ ranks }) =>
        ranks.flatMap(({ rank, loss }) => loss === null ? [] : [[{ rank: `${rank}` }, loss]]),
    );
}

function beside(metrics: StateMetrics<Fields>): void {
  metrics
    .labelled(
      "tierfold_passes",
      "Federated passes held, by where they stand.",
      ["phase"],
      ({ passes }) => byLabel("phase", ["collecting", "aggregating", "complete", "failed"], passes),
    )
    .labelled(
      "tierfold_delta_peers",
      "Peers of the delta publisher, by their connection.",
      ["state"],
      ({ deltas }) => byLabel("state", ["idle", "dialing", "open"], deltas),
    )
    .labelled(
      "tierfold_step",
      "Steps of the consensus, those before a resume included.",
      [],
      ({ durability }) => durability === null ? [] : [[{}, durability.step]],
    )
    .labelled(
      "tierfold_checkpoint_time_seconds",
      "When the last checkpoint was on the disk, in seconds since 1970.",
      [],
      ({ durability }) => {
        const atMs = durability?.checkpoint?.atMs;
        return atMs === undefined ? [] : [[{}, atMs / 1000]];
      },
    )
    .labelled(
      "tierfold_checkpoint_failing",
      "1 when the last checkpoint could not be written.",
      [],
      ({ durability }) => durability === null ? [] : [[{}, Number(durability.error !== null)]],
    );
}

function followRounds(metrics: StateMetrics<Fields>, view: SessionView): void {
  const count = metrics.rounds("tierfold_rounds_total", "Rounds that closed.");
  const seconds = metrics.roundTimes(
    "tierfold_round_seconds",
    "From a round's first byte until its result was ready.",
  );
  const lag = metrics.roundTimes(
    "tierfold_round_lag_seconds",
    "How long a round's last host arrived after its first one.",
  );
  let mass = 0;
  metrics.gauges([["tierfold_round_mass", "Mass of the last Model round.", () => mass]]);
  view.listen({
    round(round) {
      const { kind } = round;
      count(kind);
      seconds(kind, round.durationMs);
      lag(kind, round.lagMs);
      if (kind === "model") mass = round.mass;
    },
  });
}
