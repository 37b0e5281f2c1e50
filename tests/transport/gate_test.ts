import { assert, assertEquals } from "@std/assert";
import * as fc from "fast-check";
import type { Connection } from "../../transport/connection.ts";
import { BURST_SECONDS, Gate, GATE_LIMITS, type GateLimits } from "../../transport/gate.ts";
import { gated, type Refusals } from "../../transport/gated.ts";
import { tcp } from "../../transport/network.ts";
import { soon } from "../cluster/waiting.ts";

const FEW: GateLimits = { connections: 6, strangers: 4, strangersPerAddress: 2, acceptRate: 1000 };
const admitted = (evict?: number) => ({ admitted: true, evict });

Deno.test("gate: too many strangers of one address put out its oldest", () => {
  const gate = new Gate(FEW);
  assertEquals(gate.arrive(1, "a", 0), admitted());
  assertEquals(gate.arrive(2, "b", 0), admitted());
  assertEquals(gate.arrive(3, "a", 0), admitted());
  assertEquals(gate.arrive(4, "a", 0), admitted(1));
  gate.leave(1);
  assertEquals([gate.connections, gate.strangers], [3, 3]);
  // Who has said who it is stays, and makes room.
  gate.welcome(3);
  assertEquals(gate.arrive(5, "a", 0), admitted());
  assertEquals(gate.arrive(6, "a", 0), admitted(4));
});

Deno.test("gate: too many strangers in all put out the oldest of all", () => {
  const gate = new Gate(FEW);
  for (const [i, address] of ["a", "b", "c", "d"].entries()) gate.arrive(i, address, 0);
  assertEquals(gate.arrive(4, "e", 0), admitted(0));
  gate.leave(0);
  assertEquals([gate.connections, gate.strangers], [4, 4]);
});

Deno.test("gate: strangers make room at the most connections, the known do not", () => {
  const gate = new Gate({ ...FEW, connections: 2 });
  gate.arrive(0, "a", 0);
  gate.welcome(0);
  gate.arrive(1, "b", 0);
  assertEquals(gate.arrive(2, "c", 0), admitted(1));
  gate.leave(1);
  gate.welcome(2);
  const full = { admitted: false, reason: "there are 2 connections already" };
  assertEquals(gate.arrive(3, "d", 0), full);
  gate.leave(0);
  assertEquals(gate.arrive(4, "d", 0), admitted());
});

Deno.test("gate: an address that comes too often is refused, others are not", () => {
  const gate = new Gate({ ...GATE_LIMITS, acceptRate: 2 });
  for (let i = 0; i < 2 * BURST_SECONDS; i++) assert(gate.arrive(i, "a", 1000).admitted);
  const reason = "more than 2 connections a second came from a";
  assertEquals(gate.arrive(1_000, "a", 1000), { admitted: false, reason });
  assertEquals(gate.arrive(1_001, "a", 1499).admitted, false);
  assert(gate.arrive(1_002, "b", 1499).admitted);
  assert(gate.arrive(1_003, "a", 1501).admitted);
  assertEquals(gate.arrive(1_004, "a", 1502).admitted, false);
});

Deno.test("gate: 256 ranks of one host, or 32 relays, come in at once", () => {
  const gate = new Gate(GATE_LIMITS);
  for (let i = 0; i < 300; i++) assertEquals(gate.arrive(i, "127.0.0.1", 0), admitted());
});

Deno.test("gate: whatever comes and goes, the limits hold and nothing is counted twice", () => {
  const step = fc.record({
    act: fc.constantFrom("arrive", "arrive", "welcome", "leave"),
    address: fc.constantFrom("a", "b", "c"),
    pick: fc.nat(),
    wait: fc.nat(300),
  });
  const limits = fc.record({
    connections: fc.integer({ min: 1, max: 12 }),
    strangers: fc.integer({ min: 1, max: 8 }),
    strangersPerAddress: fc.integer({ min: 1, max: 5 }),
    acceptRate: fc.integer({ min: 1, max: 20 }),
  });
  fc.assert(fc.property(limits, fc.array(step, { maxLength: 200 }), (limits, steps) => {
    const gate = new Gate(limits);
    const inside = new Map<number, { address: string; known: boolean }>();
    let [next, now] = [0, 0];
    for (const { act, address, pick, wait } of steps) {
      now += wait;
      const ids = [...inside.keys()];
      const id = ids[pick % ids.length];
      if (act === "arrive") {
        const verdict = gate.arrive(next, address, now);
        if (verdict.admitted) inside.set(next, { address, known: false });
        if (verdict.admitted && verdict.evict !== undefined) {
          assertEquals(inside.get(verdict.evict)?.known, false);
          gate.leave(verdict.evict);
          inside.delete(verdict.evict);
        }
        next++;
      } else if (id !== undefined && act === "welcome") {
        gate.welcome(id);
        inside.get(id)!.known = true;
      } else if (id !== undefined) {
        gate.leave(id);
        inside.delete(id);
      }
      const strangers = [...inside.values()].filter(({ known }) => !known);
      assertEquals([gate.connections, gate.strangers], [inside.size, strangers.length]);
      assert(inside.size <= limits.connections && strangers.length <= limits.strangers);
      for (const place of ["a", "b", "c"]) {
        const own = strangers.filter(({ address }) => address === place).length;
        assert(own <= limits.strangersPerAddress);
      }
    }
  }));
});

Deno.test("gated: the evicted read the end at once, a flood is told in one line", async () => {
  const reports: Refusals[] = [];
  const network = gated(tcp, { ...GATE_LIMITS, strangersPerAddress: 3 }, (r) => reports.push(r));
  const listener = network.listen({ hostname: "127.0.0.1", port: 0 });
  const served: Connection[] = [];
  const accepting = listener.accept((connection) => served.push(connection), () => {});
  const open = () => tcp.connect(listener.address, "it", { deadlineMs: 5_000 });
  const known = await open();
  while (served.length === 0) await new Promise((resolve) => setTimeout(resolve, 5));
  served[0]!.welcome!();
  const strangers: Connection[] = [];
  for (let i = 0; i < 20; i++) strangers.push(await open());
  const buffer = new Uint8Array(1);
  for (const stranger of strangers.slice(0, 17)) {
    assertEquals(await soon("the end", stranger.read(buffer)), null);
  }
  while (served.length < 21) await new Promise((resolve) => setTimeout(resolve, 5));
  await served[20]!.write(Uint8Array.of(7));
  await served[0]!.write(Uint8Array.of(8));
  assertEquals(await soon("a byte", strangers[19]!.read(buffer)), 1);
  assertEquals(await soon("a byte", known.read(buffer)), 1);
  assertEquals(buffer[0], 8);
  assertEquals(reports.length, 1);
  assert(reports[0]!.last.includes("it had not said who it is"), reports[0]!.last);
  listener.close();
  for (const connection of [...strangers, ...served, known]) connection.close();
  await soon("accepting ends", accepting);
});
