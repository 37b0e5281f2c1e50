/**
 * A controller's rounds as spans.
 *
 * @module
 */
import type { RoundView } from "../../observe/state.ts";
import type { TracedRound } from "../../observe/tracing.ts";

/** The span of a round, with one for each host's frame. */
export function tracedRound(round: RoundView): TracedRound {
  const { startedAtMs, durationMs, arrivals } = round;
  return {
    name: "tierfold.controller.round",
    round: round.round,
    startMs: startedAtMs,
    endMs: startedAtMs + durationMs,
    attributes: {
      "tierfold.round": round.round,
      "tierfold.kind": round.kind,
      "tierfold.mass": round.mass,
      "tierfold.ranks": round.ranks,
      "tierfold.late_ranks": [...round.late],
      "tierfold.lag_ms": round.lagMs,
    },
    parts: arrivals.map(({ host, ranks, bytes, mass, beganMs, arrivedMs }) => ({
      name: "tierfold.controller.frame",
      startMs: startedAtMs + beganMs,
      endMs: startedAtMs + arrivedMs,
      attributes: {
        "tierfold.host": host,
        "tierfold.rank_numbers": [...ranks],
        "tierfold.bytes": bytes,
        "tierfold.mass": mass,
      },
    })),
  };
}
