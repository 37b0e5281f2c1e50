import { assert, assertEquals, assertMatch } from "@std/assert";
import type { RelayDocument } from "../../observe/relay_state.ts";
import type { RelaySettings } from "../../relay/settings.ts";
import { type Address, formatAddress } from "../../transport/tcp.ts";
import { average, Session } from "../cluster/session.ts";
import { soon } from "../cluster/waiting.ts";
import { Scrape } from "./watching.ts";

/** Bytes of a frame of one tensor with ten values. */
const FRAME = 17 + 1 + 1 + 4 + 8 + 40 + 8;
const VALUES = 10;

/** A relay's HTTP port, known once it is served. */
class RelayHttp {
  readonly #address = Promise.withResolvers<Address>();
  readonly settings: Partial<RelaySettings> = {
    http: { hostname: "127.0.0.1", port: 0 },
    onHttp: (address) => this.#address.resolve(address),
  };

  async get(path: string): Promise<Response> {
    const address = await soon("HTTP is served", this.#address.promise);
    return await fetch(`http://${formatAddress(address)}${path}`);
  }

  async state(): Promise<RelayDocument> {
    return await (await this.get("/state.json")).json();
  }

  async shows(what: string, wanted: (state: RelayDocument) => boolean): Promise<RelayDocument> {
    return await soon(
      what,
      (async () => {
        for (;;) {
          const state = await this.state();
          if (wanted(state)) return state;
          await new Promise((resolve) => setTimeout(resolve, 20));
        }
      })(),
    );
  }

  async scrape(): Promise<Scrape> {
    return new Scrape(await (await this.get("/metrics")).text());
  }
}

Deno.test("a relay tells of its ranks, their arrivals and its bytes", async () => {
  const http = new RelayHttp();
  await using session = await Session.start({
    hosts: [[0, 1], [2]],
    relays: { 0: http.settings },
  });
  const clients = await session.ranks();
  for (let i = 0; i < 3; i++) {
    await average(clients, clients.map(() => new Float32Array(VALUES)), [1, 2, 4]);
  }
  const state = await http.state();
  assertEquals([state.format, state.role, state.host, state.kernel], [
    1,
    "relay",
    "host-0",
    "simd",
  ]);
  assertEquals([state.phase, state.ready, state.controller], [
    "running",
    true,
    session.controller.address,
  ]);
  assertEquals(state.listen, session.relays[0]!.address);
  assertEquals(state.ranks.map(({ rank, phase }) => [rank, phase]), [[0, "live"], [1, "live"]]);
  assertEquals(state.rounds.map(({ round }) => round), [0, 1, 2]);
  for (const round of state.rounds) {
    assertEquals([round.mass, round.resultMass, round.late], [3, 7, []]);
    assertEquals(round.arrivals.map(({ rank }) => rank).sort(), [0, 1]);
    const times = round.arrivals.map(({ arrivedMs }) => arrivedMs);
    assertEquals(times, times.toSorted((a, b) => a - b));
    assert(Math.abs(round.lagMs - (times[1]! - times[0]!)) < 0.01);
    assert(round.gatherMs >= times[1]! && round.durationMs >= round.gatherMs);
  }
  const { bytesIn, bytesOut, bytesUp, bytesDown } = state.totals;
  const record = 25 + FRAME;
  assertEquals([bytesUp, bytesDown], [3 * record, 3 * record]);
  assertEquals([bytesIn, bytesOut], [6 * (4 + FRAME), 6 * (4 + FRAME)]);
  assertEquals(await (await http.get("/healthz")).text(), "ok\n");

  const scrape = await http.scrape();
  for (const { name, help, type } of scrape.families) {
    assertMatch(name, /^tierfold_relay_[a-z_]+$/);
    assert(help.endsWith("."), `${name} says what it is: ${help}`);
    assertEquals(name.endsWith("_total"), type === "COUNTER", `${name} is a ${type}`);
  }
  assertEquals(scrape.value("tierfold_relay_rounds_total", { kind: "model" }), 3);
  assertEquals(scrape.value("tierfold_relay_gather_seconds_count", { kind: "model" }), 3);
  assertEquals(scrape.value("tierfold_relay_ranks", { phase: "live" }), 2);
  assertEquals(scrape.value("tierfold_relay_bytes_up_total"), 3 * record);
  assert(scrape.value("tierfold_relay_rank_lag_seconds", { rank: "1" })! >= 0);
  await session.finish();
});

Deno.test("a relay is not ready before a controller has taken it in", async () => {
  const http = new RelayHttp();
  const listener = Deno.listen({ hostname: "127.0.0.1", port: 0 });
  await using session = await Session.start({
    hosts: [[0]],
    later: [0],
    relays: {
      0: { ...http.settings, controller: { ...listener.addr as Deno.NetAddr } },
    },
  });
  await session.startRelay(0);
  const connection = await listener.accept();
  const response = await http.get("/readyz");
  assertEquals([response.status, await response.text()], [503, "no controller has taken it in\n"]);
  connection.close();
  listener.close();
  await session.relays[0]!.outcome.catch(() => {});
});

Deno.test("values that are not finite are counted, refused or not", async () => {
  for (const policy of ["refuse", "zero"] as const) {
    const http = new RelayHttp();
    await using session = await Session.start({
      hosts: [[0, 1]],
      relays: { 0: { ...http.settings, nonfinite: policy } },
    });
    const [first, second] = await session.ranks();
    const fine = first!.allReduce([new Float32Array(VALUES)], { mass: 1 });
    const odd = new Float32Array(VALUES).fill(NaN, 3, 5);
    const other = second!.allReduce([odd], { mass: 1 }).then(() => "taken", () => "refused");
    await soon("the round", fine);
    assertEquals(await other, policy === "refuse" ? "refused" : "taken");
    const { totals } = await http.shows(
      "it",
      ({ events }) => events.some(({ kind, ranks }) => kind === "nonfinite" && ranks[0] === 1),
    );
    assertEquals(
      [totals.nonfiniteFrames, totals.nonfiniteValues],
      policy === "refuse" ? [1, 0] : [0, 2],
    );
    const scrape = await http.scrape();
    assertEquals(scrape.value("tierfold_relay_nonfinite_frames_total"), totals.nonfiniteFrames);
    assertEquals(scrape.value("tierfold_relay_refusals_total"), totals.nonfiniteFrames);
  }
});
