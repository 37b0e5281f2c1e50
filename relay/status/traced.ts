/**
 * A relay's rounds as spans.
 *
 * @module
 */
import type { RelayRoundView } from "../../observe/relay_state.ts";
import type { TracedRound } from "../../observe/tracing.ts";

/** The span of a round, with one for each rank's frame, and one for the wait for the result. */
export function tracedRound(host: string, round: RelayRoundView): TracedRound {
  const { startedAtMs, gatherMs, durationMs, arrivals } = round;
  const endMs = startedAtMs + durationMs;
  return {
    name: "tierfold.relay.round",
    round: round.round,
    startMs: startedAtMs,
    endMs,
    attributes: {
      "tierfold.round": round.round,
      "tierfold.kind": round.kind,
      "tierfold.host": host,
      "tierfold.mass": round.mass,
      "tierfold.late_ranks": [...round.late],
      "tierfold.lag_ms": round.lagMs,
    },
    parts: [
      ...arrivals.map(({ rank, arrivedMs }) => ({
        name: "tierfold.relay.arrival",
        startMs: startedAtMs,
        endMs: startedAtMs + arrivedMs,
        attributes: { "tierfold.rank": rank },
      })),
      {
        name: "tierfold.relay.uplink",
        startMs: startedAtMs + gatherMs,
        endMs,
        attributes: { "tierfold.host": host },
      },
    ],
  };
}
