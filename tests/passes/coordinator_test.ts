// The pass machine as tables of events and what they lead to.
import { assertEquals, assertInstanceOf, assertThrows } from "@std/assert";
import * as fc from "fast-check";
import { PassCoordinator } from "../../controller/passes/coordinator.ts";
import {
  type Contribution,
  isName,
  PassError,
  type PassErrorCode,
  type PassSpec,
  type PassState,
} from "../../controller/passes/pass.ts";

const KEY = "7-lead";

function spec(changes: Partial<PassSpec> = {}): PassSpec {
  return {
    round: 7,
    initiator: "lead",
    expected: 2,
    layers: [{ name: "w" }],
    deadlineMs: 1_000,
    ...changes,
  };
}

function given(peer: string, changes: Partial<Contribution> = {}): Contribution {
  const cid = `grad-${peer}`;
  return { peer, cid, layer: "w", numSamples: 10, squares: 1, submittedAtMs: 5, ...changes };
}

function codeOf(run: () => unknown): PassErrorCode {
  const error = assertThrows(run);
  assertInstanceOf(error, PassError);
  return (error as PassError).code;
}

/** An event, and the state or the error that it leads to. */
type Step = [run: (passes: PassCoordinator) => unknown, then: PassState | PassErrorCode];

const start = (changes?: Partial<PassSpec>, at = 0) => (passes: PassCoordinator) =>
  passes.start(spec(changes), at);
const submit = (contribution: Contribution) => (passes: PassCoordinator) =>
  passes.submit(KEY, contribution);
const aggregate = (at = 0) => (passes: PassCoordinator) => passes.aggregate(KEY, at);
const complete = (passes: PassCoordinator) => passes.complete(KEY, "grad-sum");
const fail = (passes: PassCoordinator) => passes.fail(KEY, "kernel lost");
const expire = (at: number) => (passes: PassCoordinator) => passes.expire(at);
const collecting = (received: number, expected = 2): PassState => ({
  kind: "CollectingGradients",
  received,
  expected,
});
const PENDING: PassState = { kind: "Pending" };
const AGGREGATING: PassState = { kind: "Aggregating" };
const COMPLETE: PassState = { kind: "Complete", cid: "grad-sum" };
const FAILED: PassState = { kind: "Failed", reason: "kernel lost" };
const two = { layers: [{ name: "w" }, { name: "b" }] };

const table: Record<string, Step[]> = {
  "the straight way": [
    [start(), PENDING],
    [submit(given("a")), collecting(1)],
    [submit(given("b")), collecting(2)],
    [aggregate(), AGGREGATING],
    [complete, COMPLETE],
  ],
  "an existing pass is not started again, whatever its state": [
    [start(), PENDING],
    [start(), "PassExists"],
    [submit(given("a")), collecting(1)],
    [start({ expected: 9 }), "PassExists"],
    [fail, FAILED],
    [start(), "PassExists"],
  ],
  "an unknown pass": [
    [submit(given("a")), "PassNotFound"],
    [aggregate(), "PassNotFound"],
    [complete, "PassNotFound"],
    [fail, "PassNotFound"],
  ],
  "a terminal pass takes nothing": [
    [start(), PENDING],
    [submit(given("a")), collecting(1)],
    [submit(given("b")), collecting(2)],
    [aggregate(), AGGREGATING],
    [complete, COMPLETE],
    [submit(given("a")), "PassAlreadyTerminal"],
    [submit(given("c")), "PassAlreadyTerminal"],
    [aggregate(), "PassAlreadyTerminal"],
    [complete, "PassAlreadyTerminal"],
    [fail, "PassAlreadyTerminal"],
  ],
  "a failed pass takes nothing": [
    [start(), PENDING],
    [fail, FAILED],
    [submit(given("a")), "PassAlreadyTerminal"],
    [fail, "PassAlreadyTerminal"],
  ],
  "a peer counts once": [
    [start(), PENDING],
    [submit(given("a")), collecting(1)],
    [submit(given("a")), collecting(1)],
    [submit(given("a", { submittedAtMs: 99 })), collecting(1)],
    [submit(given("a", { cid: "grad-other" })), "ConflictingContribution"],
    [submit(given("a", { numSamples: 11 })), "ConflictingContribution"],
    [aggregate(), "NotReady"],
    [submit(given("b")), collecting(2)],
  ],
  "several layers: a peer is in with all of them": [
    [start(two), PENDING],
    [submit(given("a")), collecting(0)],
    [submit(given("b")), collecting(0)],
    [submit(given("a", { layer: "b" })), collecting(1)],
    [aggregate(), "NotReady"],
    [submit(given("b", { layer: "b" })), collecting(2)],
    [submit(given("b", { layer: "c" })), "UnknownLayer"],
    [aggregate(), AGGREGATING],
  ],
  "samples are one integer per peer": [
    [start({ ...two, maxSamples: 100 }), PENDING],
    [submit(given("a", { numSamples: -1 })), "InvalidSamples"],
    [submit(given("a", { numSamples: 0.5 })), "InvalidSamples"],
    [submit(given("a", { numSamples: NaN })), "InvalidSamples"],
    [submit(given("a", { numSamples: 101 })), "InvalidSamples"],
    [submit(given("a", { numSamples: 0 })), collecting(0)],
    [submit(given("a", { layer: "b" })), "InvalidSamples"],
    [submit(given("a", { layer: "b", numSamples: 0 })), collecting(1)],
  ],
  "the total of samples stays a u32": [
    [start(), PENDING],
    [submit(given("a", { numSamples: 0xffff_ffff })), collecting(1)],
    [submit(given("b", { numSamples: 1 })), "InvalidSamples"],
    [submit(given("b", { numSamples: 0 })), collecting(2)],
  ],
  "only the peers asked for": [
    [start({ peers: ["a", "b"] }), PENDING],
    [submit(given("mallory")), "UnknownPeer"],
    [submit(given("../a")), "UnknownPeer"],
    [submit(given("a")), collecting(1)],
  ],
  "late while it is aggregated": [
    [start(), PENDING],
    [submit(given("a")), collecting(1)],
    [submit(given("b")), collecting(2)],
    [aggregate(), AGGREGATING],
    [submit(given("c")), "PassAggregating"],
    [submit(given("a")), AGGREGATING],
    [aggregate(), "PassAggregating"],
    [fail, FAILED],
  ],
  "nothing completes that was not aggregated": [
    [start(), PENDING],
    [complete, "NotReady"],
    [submit(given("a")), collecting(1)],
    [complete, "NotReady"],
  ],
  "the deadline fails a pass": [
    [start(), PENDING],
    [submit(given("a")), collecting(1)],
    [expire(999), collecting(1)],
    [expire(1_000), {
      kind: "Failed",
      reason: "after 1000 ms 1 peers had delivered every layer, 2 were needed",
    }],
    [submit(given("b")), "PassAlreadyTerminal"],
  ],
  "the deadline with a quorum lets it be aggregated": [
    [start({ expected: 5, quorum: 2 }), PENDING],
    [submit(given("a")), collecting(1, 5)],
    [submit(given("b")), collecting(2, 5)],
    [aggregate(999), "NotReady"],
    [expire(1_000), collecting(2, 5)],
    [aggregate(1_000), AGGREGATING],
    [complete, COMPLETE],
  ],
  "the deadline below the quorum": [
    [start({ expected: 5, quorum: 2 }), PENDING],
    [submit(given("a")), collecting(1, 5)],
    [expire(1_000), {
      kind: "Failed",
      reason: "after 1000 ms 1 peers had delivered every layer, 2 (the quorum) of 5 were needed",
    }],
  ],
  "a pass that is being aggregated has no deadline": [
    [start(), PENDING],
    [submit(given("a")), collecting(1)],
    [submit(given("b")), collecting(2)],
    [aggregate(), AGGREGATING],
    [expire(5_000), AGGREGATING],
  ],
};

for (const [name, steps] of Object.entries(table)) {
  Deno.test(`passes: ${name}`, () => {
    const passes = new PassCoordinator({ maxPasses: 10 });
    for (const [i, [run, then]] of steps.entries()) {
      if (typeof then === "string") assertEquals(codeOf(() => run(passes)), then, `step ${i}`);
      else {
        run(passes);
        assertEquals(passes.status(KEY).state, then, `step ${i}`);
      }
    }
  });
}

Deno.test("passes: what is asked for is checked, and the field named", () => {
  const bad: Partial<PassSpec>[] = [
    { round: -1 },
    { round: 1.5 },
    { initiator: "" },
    { initiator: "a/b" },
    { initiator: ".." },
    { initiator: "a".repeat(65) },
    { expected: 0 },
    { expected: 1e9 },
    { layers: [] },
    { layers: [{ name: "w" }, { name: "w" }] },
    { layers: [{ name: "a b" }] },
    { layers: [{ name: "w", shape: [-1] }] },
    { deadlineMs: 0 },
    { deadlineMs: Infinity },
    { quorum: 0 },
    { quorum: 3 },
    { peers: ["a"] },
    { peers: ["a", "a"] },
    { peers: ["a", "b c"] },
  ];
  for (const changes of bad) {
    const passes = new PassCoordinator({ maxPasses: 10 });
    assertEquals(codeOf(() => passes.start(spec(changes), 0)), "InvalidPass");
    assertEquals(passes.list(), []);
  }
  assertEquals(["a", "A-1_~.x"].map((name) => isName(name, 64)), [true, true]);
});

Deno.test("passes: contributions are aggregated by peer and layer, whatever the order they came in", () => {
  const all = ["a", "b", "c"].flatMap((peer) =>
    ["w", "b"].map((layer) => given(peer, { layer, cid: `grad-${peer}${layer}` }))
  );
  fc.assert(fc.property(fc.shuffledSubarray(all, { minLength: 6 }), (order) => {
    const passes = new PassCoordinator({ maxPasses: 1 });
    passes.start(spec({ ...two, expected: 3 }), 0);
    for (const contribution of order) passes.submit(KEY, contribution);
    const cids = passes.aggregate(KEY, 0).map((layers) => layers.map(({ cid }) => cid));
    assertEquals(cids, [
      ["grad-aw", "grad-ab"],
      ["grad-bw", "grad-bb"],
      ["grad-cw", "grad-cb"],
    ]);
    assertEquals(passes.contributions(KEY).length, 6);
  }));
});

Deno.test("passes: with a quorum, a peer that delivered some layers only is left out", () => {
  const passes = new PassCoordinator({ maxPasses: 1 });
  passes.start(spec({ ...two, quorum: 1 }), 0);
  passes.submit(KEY, given("a"));
  passes.submit(KEY, given("a", { layer: "b" }));
  passes.submit(KEY, given("half"));
  assertEquals(passes.expire(1_000), { failed: [], quorate: [KEY] });
  assertEquals(passes.aggregate(KEY, 1_000).map((layers) => layers[0]!.peer), ["a"]);
});

Deno.test("passes: garbage collection takes terminal passes of earlier rounds only", () => {
  const passes = new PassCoordinator({ maxPasses: 10 });
  for (const round of [1, 2, 3]) passes.start(spec({ round, expected: 1 }), round);
  passes.start(spec({ round: 1, initiator: "other" }), 9);
  passes.fail("1-lead", "x");
  passes.fail("3-lead", "x");
  assertEquals(passes.activeCount, 2);
  assertEquals(passes.collectGarbage(1), []);
  assertEquals(passes.collectGarbage(3), ["1-lead"]);
  assertEquals(passes.list().map(({ key }) => key), ["2-lead", "3-lead", "1-other"]);
  assertEquals(passes.collectGarbage(99), ["3-lead"]);
  assertEquals(passes.activeCount, 2);
});

Deno.test("passes: the next deadline is that of the earliest collecting pass", () => {
  const passes = new PassCoordinator({ maxPasses: 10 });
  assertEquals(passes.nextDeadline(), undefined);
  passes.start(spec({ round: 1, deadlineMs: 500 }), 100);
  passes.start(spec({ round: 2, deadlineMs: 100 }), 200);
  assertEquals(passes.nextDeadline(), 300);
  assertEquals(passes.expire(300), { failed: ["2-lead"], quorate: [] });
  assertEquals(passes.nextDeadline(), 600);
});

Deno.test("passes: their number and their peers are bounded", () => {
  const passes = new PassCoordinator({ maxPasses: 2 });
  passes.start(spec({ ...two, expected: 1 }), 0);
  passes.start(spec({ round: 8 }), 0);
  assertEquals(codeOf(() => passes.start(spec({ round: 9 }), 0)), "TooManyPasses");
  for (let i = 0; i < 66; i++) passes.submit(KEY, given(`p${i}`));
  assertEquals(codeOf(() => passes.submit(KEY, given("one-more"))), "TooManyPeers");
});
