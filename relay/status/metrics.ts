/**
 * A relay's metrics.
 *
 * @module
 */
import { byLabel, StateMetrics } from "../../observe/metrics.ts";
import type { RelayDocument } from "../../observe/relay_state.ts";
import type { MetricsSource } from "../../observe/routes.ts";
import type { RelayView } from "./relay_view.ts";

/** Makes the metrics of a relay; they follow `view` from here on. */
export function relayMetrics(view: RelayView): MetricsSource {
  const metrics = new StateMetrics(() => view.document());
  totals(metrics);
  standing(metrics);
  const count = metrics.rounds("tierfold_relay_rounds_total", "Rounds that closed.");
  const gather = metrics.roundTimes(
    "tierfold_relay_gather_seconds",
    "From a round's first byte from a rank until the host's sum was ready.",
  );
  const seconds = metrics.roundTimes(
    "tierfold_relay_round_seconds",
    "From a round's first byte from a rank until its result was there.",
  );
  const lag = metrics.roundTimes(
    "tierfold_relay_round_lag_seconds",
    "How long a round's last rank arrived after its first one.",
  );
  view.listen({
    round(round) {
      const { kind } = round;
      count(kind);
      gather(kind, round.gatherMs);
      seconds(kind, round.durationMs);
      lag(kind, round.lagMs);
    },
  });
  return metrics;
}

function totals(metrics: StateMetrics<RelayDocument>): void {
  metrics.counters([
    [
      "tierfold_relay_bytes_received_total",
      "Bytes of frames accepted from ranks, framing included.",
      ({ totals }) => totals.bytesIn,
    ],
    [
      "tierfold_relay_bytes_sent_total",
      "Bytes of results sent to ranks, framing included.",
      ({ totals }) => totals.bytesOut,
    ],
    [
      "tierfold_relay_bytes_up_total",
      "Bytes of sums sent to the controller, framing included.",
      ({ totals }) => totals.bytesUp,
    ],
    [
      "tierfold_relay_bytes_down_total",
      "Bytes of results from the controller, framing included.",
      ({ totals }) => totals.bytesDown,
    ],
    [
      "tierfold_relay_refusals_total",
      "Connections refused, or ended for what they sent.",
      ({ totals }) => totals.refusals,
    ],
    [
      "tierfold_relay_rank_deaths_total",
      "Ranks lost: dead, refused, too late, or never there.",
      ({ totals }) => totals.deaths,
    ],
    ["tierfold_relay_rank_returns_total", "Ranks that came back.", ({ totals }) => totals.returns],
    [
      "tierfold_relay_late_ranks_total",
      "Ranks given up because they missed a round's deadline.",
      ({ totals }) => totals.late,
    ],
    [
      "tierfold_relay_nonfinite_frames_total",
      "Frames refused because a value was NaN or infinite.",
      ({ totals }) => totals.nonfiniteFrames,
    ],
    [
      "tierfold_relay_nonfinite_values_total",
      "Values that were NaN or infinite and counted as 0.",
      ({ totals }) => totals.nonfiniteValues,
    ],
  ]);
}

function standing(metrics: StateMetrics<RelayDocument>): void {
  metrics.gauges([
    [
      "tierfold_relay_start_time_seconds",
      "When the relay started, in seconds since 1970.",
      ({ startedAtMs }) => startedAtMs / 1000,
    ],
    [
      "tierfold_relay_ready",
      "1 when ranks can train here, as /readyz says.",
      ({ ready }) => Number(ready),
    ],
    [
      "tierfold_relay_round_open_seconds",
      "For how long the round that is gathering has had bytes; 0 before its first one.",
      ({ gathering, nowMs }) =>
        gathering.startedAtMs === null ? 0 : (nowMs - gathering.startedAtMs) / 1000,
    ],
    [
      "tierfold_relay_round_deadline_seconds",
      "How long a Model round waits after its first frame.",
      ({ deadline }) => deadline.nowMs / 1000,
    ],
    [
      "tierfold_relay_resident_memory_bytes",
      "Memory of the relay's process.",
      () => Deno.memoryUsage().rss,
    ],
  ])
    .labelled(
      "tierfold_relay_info",
      "1; the labels say what runs.",
      ["version", "host", "kernel"],
      ({ version, host, kernel }) => [[{ version, host, kernel }, 1]],
    )
    .labelled(
      "tierfold_relay_ranks",
      "Ranks of this host, by where they stand.",
      ["phase"],
      ({ ranks }) => byLabel("phase", ["expected", "live", "left", "lost"], ranks),
    )
    .labelled(
      "tierfold_relay_rank_late_rounds",
      "Rounds in which a rank of this host was given up because it was late.",
      ["rank"],
      ({ ranks }) => ranks.map(({ rank, timesLate }) => [{ rank: `${rank}` }, timesLate]),
    )
    .labelled(
      "tierfold_relay_rank_lag_seconds",
      "How long a rank arrived after the first one of its host in the last round.",
      ["rank"],
      ({ rounds }) => {
        const { arrivals = [] } = rounds.at(-1) ?? {};
        const first = arrivals[0]?.arrivedMs ?? 0;
        return arrivals.map(({ rank, arrivedMs }) => [
          { rank: `${rank}` },
          (arrivedMs - first) / 1000,
        ]);
      },
    );
}
