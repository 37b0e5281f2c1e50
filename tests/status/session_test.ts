import { assert, assertEquals, assertMatch } from "@std/assert";
import { signedHeaders } from "../../controller/passes/auth.ts";
import { average, Session } from "../cluster/session.ts";
import { soon } from "../cluster/waiting.ts";
import { SESSION_SALT as SALT } from "../vectors.ts";
import { Port, Scrape } from "./watching.ts";

/** Bytes of a record that holds a frame of one tensor with so many values. */
const recordBytes = (values: number) => 25 + 17 + 1 + 1 + 4 + 8 + 4 * values + 8;

const HOSTS = [[0, 1], [2]];

async function rounds(clients: Awaited<ReturnType<Session["ranks"]>>, count: number) {
  for (let i = 0; i < count; i++) {
    await average(clients, clients.map(() => new Float32Array(10)), clients.map(() => 2));
  }
}

Deno.test("the state tells hosts, ranks, rounds and bytes", async () => {
  const port = new Port();
  await using session = await Session.start({
    hosts: HOSTS,
    later: [1],
    controller: port.settings,
  });
  const early = await port.shows("one host", ({ hosts }) => hosts.length === 1);
  assertEquals([early.phase, early.ready], ["waiting", false]);
  assertEquals(early.notReady, ["rank 2 has no relay yet"]);
  assertEquals(early.ranks.map(({ phase, host }) => [phase, host]), [
    ["live", "host-0"],
    ["live", "host-0"],
    ["expected", null],
  ]);
  const unready = await port.get("/readyz");
  assertEquals([unready.status, await unready.text()], [503, "rank 2 has no relay yet\n"]);

  await session.startRelay(1);
  const clients = await session.ranks();
  await rounds(clients, 3);
  const state = await port.state();
  assertEquals([state.phase, state.ready, state.notReady], ["running", true, []]);
  assertEquals([state.format, state.kernel, state.worldSize], [1, "simd", 3]);
  assertEquals(state.listen, session.controller.address);
  assert(state.nowMs >= state.startedAtMs);
  assertEquals(state.rounds.map(({ round }) => round), [0, 1, 2]);
  const bytes = recordBytes(10);
  for (const round of state.rounds) {
    assertEquals([round.kind, round.mass, round.ranks], ["model", 6, 3]);
    assertEquals([round.bytesIn, round.bytesOut, round.late], [2 * bytes, 2 * bytes, []]);
    const hosts = round.arrivals.map(({ key, host, ranks, mass }) => ({ key, host, ranks, mass }));
    assertEquals(hosts.sort((a, b) => a.key - b.key), [
      { key: 0, host: "host-0", ranks: [0, 1], mass: 4 },
      { key: 2, host: "host-1", ranks: [2], mass: 2 },
    ]);
    const times = round.arrivals.map(({ arrivedMs }) => arrivedMs);
    assertEquals(times, times.toSorted((a, b) => a - b));
    assertEquals(Math.min(...round.arrivals.map(({ beganMs }) => beganMs)), 0);
    assert(round.durationMs >= times.at(-1)!);
    assert(Math.abs(round.lagMs - (times[1]! - times[0]!)) < 0.01);
  }
  assertEquals(state.totals, {
    rounds: 3,
    bytesIn: 6 * bytes,
    bytesOut: 6 * bytes,
    refusals: 0,
    deaths: 0,
    returns: 0,
    late: 0,
  });
  assertEquals(state.hosts.map(({ name, frames, bytesOut }) => [name, frames, bytesOut]), [
    ["host-0", 3, 3 * bytes],
    ["host-1", 3, 3 * bytes],
  ]);
  assertEquals([state.passes, state.deltas, state.durability], [[], null, null]);
  const ready = await port.get("/readyz");
  assertEquals([ready.status, await ready.text()], [200, "ready\n"]);
  const healthy = await port.get("/healthz");
  assertEquals([healthy.status, await healthy.text()], [200, "ok\n"]);
  await session.finish();
});

Deno.test("ranks that leave, come back and are lost are told with the reason", async () => {
  const port = new Port();
  await using session = await Session.start({ hosts: HOSTS, controller: port.settings });
  const clients = await session.ranks();
  await rounds(clients, 1);
  await clients[1]!.close();
  const gone = await port.shows("rank 1 is gone", ({ ranks }) => ranks[1]!.phase === "left");
  assertEquals(gone.ranks[1]!.reason, "its connection to its relay was closed");
  const back = await session.rank(1);
  await port.shows("rank 1 is back", ({ ranks }) => ranks[1]!.phase === "live");
  await rounds([clients[0]!, back, clients[2]!], 1);

  session.relays[1]!.stop();
  await session.relays[1]!.outcome.catch(() => {});
  const state = await port.shows("rank 2 is lost", ({ ranks }) => ranks[2]!.phase === "lost");
  assertEquals([state.totals.returns, state.totals.deaths], [1, 1]);
  assertEquals(state.hosts.map(({ connected, ranks }) => [connected, ranks]), [
    [true, [0, 1]],
    [false, []],
  ]);
  assertEquals(
    state.events.map(({ kind }) => kind).filter((kind) => kind !== "host_joined"),
    ["session", "rank_left", "rank_returned", "host_lost"],
  );
  assertEquals(state.events.map(({ id }) => id), state.events.map((_, index) => index));
  assertMatch(state.events.at(-1)!.text, /^host host-1 is out with rank 2: /);
});

Deno.test("a session with too few ranks for a round is not ready", async () => {
  const port = new Port();
  await using session = await Session.start({
    hosts: HOSTS,
    controller: { ...port.settings, minRanks: 3 },
  });
  const clients = await session.ranks();
  await rounds(clients, 1);
  assertEquals((await port.state()).notReady, []);
  await clients[1]!.close();
  const { notReady } = await port.shows("rank 1 is gone", ({ ready }) => !ready);
  assertEquals(notReady, ["2 ranks are left, a round closes with 3 at least"]);
});

Deno.test("a stream starts with the whole state and tells what changes", async () => {
  const port = new Port();
  await using session = await Session.start({ hosts: HOSTS, controller: port.settings });
  const first = await port.stream();
  assert(await first.next());
  assertEquals(first.document!.rounds, []);
  const clients = await session.ranks();
  await rounds(clients, 2);
  await first.shows("two rounds", ({ rounds }) => rounds.length === 2);
  const second = await port.stream();
  await second.next();
  assertEquals(second.document!.rounds.length, 2);
  await rounds(clients, 1);
  await first.shows("a third round", ({ rounds }) => rounds.length === 3);
  await second.shows("a third round", ({ rounds }) => rounds.length === 3);
  const { nowMs: _, gathering, ...state } = await port.state();
  for (const { document } of [first, second]) {
    const { nowMs: _, gathering: told, ...rest } = document!;
    assertEquals(rest, state);
    assertEquals(told.round, gathering.round);
  }
  await second.cancel();
  await session.finish();
  // The end is told, and then the stream ends.
  while (await soon("the stream ends", first.next()));
  assertEquals([first.document!.phase, first.document!.ready], ["over", false]);
});

Deno.test("metrics can be scraped, and count what happened", async () => {
  const port = new Port();
  await using session = await Session.start({ hosts: HOSTS, controller: port.settings });
  assertEquals((await port.scrape()).value("tierfold_rounds_total", { kind: "model" }), 0);
  const clients = await session.ranks();
  await rounds(clients, 4);
  await Promise.all(clients.map((client) => client.gatherCounts(1)));
  await clients[0]!.close();
  await port.shows("rank 0 is gone", ({ ranks }) => ranks[0]!.phase === "left");
  const response = await port.get("/metrics");
  assertMatch(response.headers.get("content-type")!, /^text\/plain; version=0\.0\.4/);
  const scrape = new Scrape(await response.text());
  for (const { name, help, type } of scrape.families) {
    assertMatch(name, /^tierfold_[a-z_]+$/);
    assert(help.endsWith("."), `${name} says what it is: ${help}`);
    assertEquals(name.endsWith("_total"), type === "COUNTER", `${name} is a ${type}`);
  }
  const state = await port.state();
  const values: [string, Record<string, string>, number][] = [
    ["tierfold_rounds_total", { kind: "model" }, 4],
    ["tierfold_rounds_total", { kind: "control" }, 1],
    ["tierfold_round_seconds_count", { kind: "model" }, 4],
    ["tierfold_round_lag_seconds_count", { kind: "control" }, 1],
    ["tierfold_round_mass", {}, 6],
    ["tierfold_round", {}, 5],
    ["tierfold_bytes_received_total", {}, state.totals.bytesIn],
    ["tierfold_bytes_sent_total", {}, state.totals.bytesOut],
    ["tierfold_ranks", { phase: "live" }, 2],
    ["tierfold_ranks", { phase: "left" }, 1],
    ["tierfold_hosts", {}, 2],
    ["tierfold_world_size", {}, 3],
    ["tierfold_ready", {}, 1],
    ["tierfold_passes", { phase: "collecting" }, 0],
    ["tierfold_info", { version: state.version, session: state.session, kernel: "simd" }, 1],
  ];
  for (const [name, labels, value] of values) {
    assertEquals(scrape.value(name, labels), value, `${name} ${JSON.stringify(labels)}`);
  }
  assert(scrape.value("tierfold_resident_memory_bytes")! > 1024 ** 2);
  await session.finish();
});

Deno.test("a refused connection is counted and told", async () => {
  const port = new Port();
  await using session = await Session.start({ hosts: [[0]], controller: port.settings });
  const [hostname, number] = session.controller.address.split(":");
  const connection = await Deno.connect({ hostname: hostname!, port: Number(number) });
  await connection.write(new Uint8Array(64));
  const state = await port.shows("a refusal", ({ totals }) => totals.refusals === 1);
  const refusal = state.events.find(({ kind }) => kind === "refused");
  assertMatch(refusal!.text, /^a connection from \S+ was refused: reading the channel magic/);
  assertEquals((await port.scrape()).value("tierfold_refusals_total"), 1);
  connection.close();
});

Deno.test("ranks report losses, signed with the salt", async () => {
  const port = new Port();
  await using _session = await Session.start({ hosts: [[0, 1]], controller: port.settings });
  const post = async (body: string, salt = SALT, method = "POST") => {
    const bytes = new TextEncoder().encode(body);
    const headers = signedHeaders({ method, path: "/losses", body: bytes }, salt);
    const response = await fetch(await port.url("/losses"), { method, headers, body: bytes });
    return [response.status, (await response.text()).match(/"code":"(\w+)"/)?.[1]];
  };
  assertEquals(await post(`{"rank": 1, "step": 3, "loss": 0.5}`), [204, undefined]);
  assertEquals(await post(`{"rank": 1, "step": 4, "loss": 0.25}`), [204, undefined]);
  const state = await port.state();
  assertEquals(state.losses.map(({ rank, step, loss }) => [rank, step, loss]), [
    [1, 3, 0.5],
    [1, 4, 0.25],
  ]);
  assertEquals(state.ranks.map(({ loss }) => loss), [null, 0.25]);
  assertEquals((await port.scrape()).value("tierfold_loss", { rank: "1" }), 0.25);

  const stranger = new Uint8Array(16);
  assertEquals(await post(`{"rank": 1, "step": 4, "loss": 9}`, stranger), [401, "BadSignature"]);
  assertEquals(await post(`{"rank": 2, "step": 4, "loss": 9}`), [422, "InvalidLoss"]);
  assertEquals(await post(`{"rank": 1, "step": 4, "loss": 1e999}`), [400, "InvalidBody"]);
  assertEquals(await post(`{"rank": 1}`), [400, "InvalidBody"]);
  assertEquals(await post(`nothing`), [400, "InvalidBody"]);
  assertEquals(await post(" ".repeat(2000)), [413, "BodyTooLarge"]);
  assertEquals(await post(`{}`, SALT, "PUT"), [405, "MethodNotAllowed"]);
  assertEquals((await port.state()).losses.length, 2);
});

for (const path of ["/state.json", "/events", "/metrics", "/healthz", "/readyz"]) {
  Deno.test(`${path} can only be read`, async () => {
    const port = new Port();
    await using _session = await Session.start({ hosts: [[0]], controller: port.settings });
    for (const method of ["POST", "PUT", "DELETE"]) {
      const response = await fetch(await port.url(path), { method });
      await response.body?.cancel();
      assertEquals(response.status, 405);
    }
  });
}
