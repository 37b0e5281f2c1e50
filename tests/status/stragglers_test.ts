// Ranks that stop without closing, in a cluster of real processes with adaptive deadlines.
import { assert, assertEquals, AssertionError } from "@std/assert";
import type { RelayDocument } from "../../observe/relay_state.ts";
import type { StateDocument } from "../../observe/state.ts";
import { Cluster, type Member, type Ranks } from "../cluster/cluster.ts";
import { PATIENCE_MS, pause } from "../cluster/waiting.ts";

/** The least of the deadline: far above what a round of this test takes on a busy machine. */
const FLOOR = "3s";
const ARGS = ["--http", "127.0.0.1:0", "--round-deadline", "10m", "--adaptive-deadline", FLOOR];

async function shows<T>(member: Member, what: string, wanted: (state: T) => boolean): Promise<T> {
  await member.logged("serving HTTP on");
  const [, address] = /serving HTTP on (\S+)/.exec(member.child.stderr)!;
  const end = Date.now() + PATIENCE_MS;
  for (;;) {
    const state: T = await (await fetch(`http://${address}/state.json`)).json();
    if (wanted(state)) return state;
    if (Date.now() > end) throw new AssertionError(`${what}: ${JSON.stringify(state)}`);
    await pause(50);
  }
}

async function round(ranks: readonly Ranks[], mass = ranks.length): Promise<void> {
  await Promise.all(ranks.map((rank) => rank.begin([[1, 2]])));
  for (const rank of ranks) assertEquals((await rank.round()).masses, [mass]);
}

const continued: { name: string; hosts: number[][]; stopped: number }[] = [
  { name: "beside others on its host", hosts: [[0, 1], [2]], stopped: 1 },
  { name: "alone on its host, where only the controller waits", hosts: [[0, 1], [2]], stopped: 2 },
];

for (const { name, hosts, stopped } of continued) {
  Deno.test(`a stopped rank ${name} is out at the adaptive deadline, and comes back`, async () => {
    const options = { args: ARGS };
    await using cluster = await Cluster.start(hosts, options, { 0: options, 1: options });
    const all = await Promise.all(hosts.flat().map((rank) => cluster.ranks([rank])));
    for (let i = 0; i < 10; i++) await round(all);
    const relay = cluster.relays[hosts.findIndex((ranks) => ranks.includes(stopped))]!;
    const alone = hosts.some((ranks) => ranks.length === 1 && ranks[0] === stopped);
    const judge = alone ? cluster.controller : relay;
    const before = await shows<StateDocument>(
      cluster.controller,
      "ten rounds",
      ({ totals }) => totals.rounds === 10,
    );
    assert(before.deadline.adaptive && before.deadline.nowMs < 600_000, "it adapts");

    const rest = all.filter((_, rank) => rank !== stopped);
    all[stopped]!.signal("SIGSTOP");
    await round(rest);
    if (alone) await judge.logged("host host-1 has not delivered in round 10 after");
    else await judge.logged(`rank ${stopped} is out in round 10: it did not deliver within`);
    const late = await shows<StateDocument | RelayDocument>(
      judge,
      "it is late",
      ({ ranks }) => ranks.some(({ rank, timesLate }) => rank === stopped && timesLate === 1),
    );
    const last = late.rounds.at(-1)!;
    assertEquals([last.round, last.late], [10, [stopped]]);
    assert(last.deadlineMs >= 3_000 && last.durationMs >= last.deadlineMs);
    const after = await shows<StateDocument>(
      cluster.controller,
      "eleven rounds",
      ({ totals }) => totals.rounds === 11,
    );
    assertEquals(after.rounds.at(-1)!.mass, 2);

    all[stopped]!.signal("SIGCONT");
    await all[stopped]!.begin([[1, 2]]);
    await all[stopped]!.failed(alone ? "declared" : "did not deliver within");
    // A relay without ranks has nothing to do.
    if (alone) {
      await relay.ends(3);
      await cluster.startRelay(1).listens();
      // It does not hold the others up for a rank that is not there yet.
      await shows<StateDocument>(
        cluster.controller,
        "its relay is back without it",
        ({ ranks }) => ranks[stopped]!.phase === "left" && ranks[stopped]!.returns === 1,
      );
    }
    const back = await cluster.ranks([stopped]);
    await shows<StateDocument>(
      cluster.controller,
      "it is back",
      ({ ranks }) =>
        ranks[stopped]!.phase === "live" && ranks[stopped]!.returns === (alone ? 2 : 1),
    );
    await round([...rest, back]);
    if (!alone) {
      const { events } = await shows<RelayDocument>(
        relay,
        "it is back",
        ({ totals }) => totals.returns === 1,
      );
      const { text } = events.find(({ kind }) => kind === "rank_returned")!;
      assert(/^rank 1, given up in round 10, is back at \S+ \d+ ms after/.test(text), text);
    }
    await cluster.finish([...rest, back]);
  });
}
