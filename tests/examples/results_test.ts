import { assertEquals, assertStringIncludes } from "@std/assert";
import type { BaselineReport, EndReport, RoundReport } from "../../examples/digits/report.ts";
import { describeShard, judge } from "../../examples/digits/results.ts";
import { RoundBoard } from "../../examples/digits/rounds.ts";

const round = (rank: number, change: Partial<RoundReport> = {}): RoundReport => ({
  kind: "round",
  rank,
  round: 1,
  steps: 1,
  loss: 1,
  roundMs: 10,
  averageMs: 5,
  bytesUp: 100,
  ...change,
});

const ends = (accuracy: number, ...sums: string[]): EndReport[] =>
  sums.map((sha256, rank) => ({
    kind: "end",
    rank,
    sha256,
    ...(rank === 0 ? { accuracy } : {}),
  }));

const run = (accuracy: number, rank?: number): BaselineReport => ({
  kind: "baseline",
  digits: 1_000,
  steps: 2_000,
  accuracy,
  ...(rank === undefined ? {} : { rank }),
});

const sum = "0123456789abcdef".repeat(4);
const alone = [run(0.8, 0), run(0.5, 1)];

Deno.test("a round is complete when every rank has reported it, in any order", () => {
  const board = new RoundBoard(2);
  assertEquals(board.add(round(1)), undefined);
  assertEquals(board.add(round(1, { round: 2 })), undefined);
  assertEquals(board.add(round(0))?.round, 1);
  assertEquals(board.add(round(0, { round: 2 }))?.round, 2);
});

Deno.test("a round's loss is weighted by steps, its time is the slowest rank's", () => {
  const board = new RoundBoard(2);
  board.add(round(0, { steps: 3, loss: 1, roundMs: 30, averageMs: 2 }));
  assertEquals(board.add(round(1, { steps: 1, loss: 5, roundMs: 20, averageMs: 12 })), {
    round: 1,
    loss: 2,
    roundMs: 30,
    averageMs: 2,
    bytesUp: 200,
  });
});

Deno.test("a shard is described by the labels it mostly has", () => {
  const labels = [500, 0, 20, 480, 0, 0, 0, 0, 0, 0];
  assertEquals(
    describeShard({ kind: "start", rank: 2, digits: 1_000, labels, steps: 7 }),
    "  rank 2   1,000 digits, mostly 0 3; 7 steps a round",
  );
});

Deno.test("a good run passes every check", () => {
  const { lines, sameBits } = judge({ ends: ends(0.93, sum, sum), alone, all: run(0.95) });
  assertEquals(sameBits, true);
  assertEquals(lines, [
    "Test accuracy, on digits that nobody trained on:",
    "  consensus of 2 ranks               93.00 %",
    "  rank 0 alone on its own shard      80.00 %  2,000 steps on 1,000 digits",
    "  rank 1 alone on its own shard      50.00 %  2,000 steps on 1,000 digits",
    "  one process on all digits          95.00 %  2,000 steps on 1,000 digits",
    "",
    "  yes  the consensus beats every rank alone: by 13.00 points or more",
    "  yes  it stays within 3 points of one process on all digits: 2.00 points behind",
    "  yes  all ranks ended with the same bits: SHA-256 0123456789abcdef...",
  ]);
});

Deno.test("each check fails when what it claims does not hold", () => {
  const others = judge({ ends: ends(0.93, sum, "f".repeat(64)), alone, all: run(0.95) });
  assertEquals(others.sameBits, false);
  assertStringIncludes(
    others.lines.at(-1)!,
    "NO   all ranks ended with the same bits: 2 different",
  );
  const behind = judge({ ends: ends(0.85, sum, sum), alone, all: run(0.95) });
  assertStringIncludes(behind.lines.at(-2)!, "NO   it stays within 3 points");
  const worse = judge({ ends: ends(0.79, sum, sum), alone, all: run(0.8) });
  assertEquals(
    worse.lines.at(-3),
    "  NO   the consensus beats every rank alone: best alone is 1.00 points better",
  );
});

Deno.test("three points behind are still within three points", () => {
  const { lines } = judge({ ends: ends(0.92, sum, sum), alone, all: run(0.95) });
  assertStringIncludes(lines.at(-2)!, "yes  it stays within 3 points");
});

Deno.test("a world of one is not compared with itself", () => {
  const { lines } = judge({ ends: ends(0.93, sum), alone: [run(0.93, 0)], all: run(0.92) });
  assertEquals(lines.filter((line) => line.includes("beats every rank alone")), []);
  assertStringIncludes(lines.at(-2)!, "1.00 points ahead");
});
