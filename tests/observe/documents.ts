// State documents for tests.
import type { StateDocument } from "../../observe/state.ts";

/** A session of so many ranks in which nothing has happened. */
export function emptyDocument(worldSize: number): StateDocument {
  return {
    format: 1,
    role: "controller",
    version: "0.0.0",
    session: "00000000-0000-4000-8000-000000000000",
    startedAtMs: 0,
    nowMs: 0,
    listen: null,
    worldSize,
    phase: "waiting",
    ready: false,
    notReady: ["no relay has come"],
    kernel: "plain",
    frameCeilingBytes: 1024,
    deadline: { adaptive: false, nowMs: 1000, floorMs: 1000, capMs: 1000 },
    totals: { rounds: 0, bytesIn: 0, bytesOut: 0, refusals: 0, deaths: 0, returns: 0, late: 0 },
    ranks: Array.from({ length: worldSize }, (_, rank) => ({
      rank,
      phase: "expected",
      sinceAtMs: 0,
      host: null,
      reason: null,
      returns: 0,
      timesLate: 0,
      loss: null,
    })),
    hosts: [],
    gathering: { round: 0, startedAtMs: null, delivered: [], awaited: [] },
    rounds: [],
    losses: [],
    passes: null,
    deltas: null,
    durability: null,
    events: [],
  };
}
