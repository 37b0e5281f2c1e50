import { assert, assertEquals, assertThrows } from "@std/assert";
import * as fc from "fast-check";
import { type Host, Membership } from "../../controller/membership.ts";
import { WireError } from "../../wire/errors.ts";

/** The text with which `action` is refused, at the cost of the connection. */
function refusal(action: () => unknown): string {
  const error = assertThrows(action, WireError);
  assertEquals([error.code, error.scope], ["membership", "connection"]);
  return error.message;
}

Deno.test("membership: from unclaimed to carried to gone, and back", () => {
  const session = new Membership(5);
  assertEquals([session.unclaimed, session.carried, session.hosts], [[0, 1, 2, 3, 4], [], []]);
  const b = session.claim("b", [1, 3]);
  const a = session.claim("a", [0, 4]);
  assertEquals(session.hosts.map(({ name }) => name), ["a", "b"]);
  assertEquals([session.unclaimed, session.carried], [[2], [0, 1, 3, 4]]);
  session.exit(b, 1);
  assertEquals([session.state(1), session.state(2), session.state(3)], [
    "gone",
    "unclaimed",
    "carried",
  ]);
  assertEquals(session.state(5), undefined);
  // The order of hosts stays when the lowest rank of one has left.
  assertEquals(session.hosts.map(({ key }) => key), [0, 1]);
  assertEquals(session.renew(b, [1, 3]), [1]);
  assertEquals(session.renew(b, [1, 3]), []);
  assertEquals(session.release(a), [0, 4]);
  assertEquals([session.host(0), session.state(0), session.state(4)], [undefined, "gone", "gone"]);
  assertEquals(session.giveUpUnclaimed(), [2]);
  assertEquals(session.giveUpUnclaimed(), []);
  session.claim("c", [0, 2]);
  assertEquals(session.carried, [0, 1, 2, 3]);
});

Deno.test("membership: refusals name host, rank and what is wrong, and change nothing", () => {
  const session = new Membership(4);
  const a = session.claim("a", [0, 1]);
  const rows: [action: () => unknown, text: string][] = [
    [() => session.claim("b", []), 'Hello of host "b": it carries no rank'],
    [() => session.claim("b", [4]), 'Hello of host "b": rank 4 is not below the world size 4'],
    [() => session.claim("b", [2, 9]), 'Hello of host "b": rank 9 is not below the world size 4'],
    [() => session.claim("b", [1, 2]), 'Hello of host "b": rank 1 is carried by host "a" already'],
    [() => session.exit(a, 2), 'RankExit of host "a": it does not carry rank 2'],
    [() => session.renew(a, [0, 1, 7]), 'Hello of host "a": rank 7 is not below'],
  ];
  for (const [action, text] of rows) {
    const message = refusal(action);
    assert(message.includes(text), message);
    assertEquals([session.unclaimed, session.carried], [[2, 3], [0, 1]]);
    assertEquals(session.hosts.length, 1);
  }
  const b = session.claim("b", [2]);
  assert(refusal(() => session.renew(b, [0, 2])).includes("rank 0 is carried by host"));
  session.exit(a, 0);
  assert(refusal(() => session.exit(a, 0)).includes("does not carry rank 0"));
  assert(
    refusal(() => session.claim("c", [0, 3])).includes('lowest rank 0 has left host "a", which is'),
  );
  assertEquals(session.unclaimed, [3]);
  session.release(a);
  session.claim("c", [0, 3]);
});

Deno.test("membership: whatever happens, every rank has one state and at most one host", () => {
  const world = 6;
  const event = fc.record({
    what: fc.constantFrom("claim", "renew", "exit", "release", "giveUp"),
    host: fc.nat(3),
    ranks: fc.uniqueArray(fc.nat(world), { maxLength: 3 }).map((list) =>
      list.sort((a, b) => a - b)
    ),
  });
  fc.assert(fc.property(fc.array(event, { maxLength: 40 }), (events) => {
    const session = new Membership(world);
    const hosts: Host[] = [];
    for (const { what, host: at, ranks } of events) {
      const host = hosts[at];
      try {
        if (what === "claim") hosts.push(session.claim(`host ${hosts.length}`, ranks));
        else if (what === "giveUp") session.giveUpUnclaimed();
        else if (host !== undefined && session.host(host.key) === host) {
          if (what === "renew") session.renew(host, ranks);
          else if (what === "exit") session.exit(host, ranks[0] ?? 0);
          else session.release(host);
        }
      } catch (error) {
        if (!(error instanceof WireError)) throw error;
      }
      const carriers = session.hosts.flatMap((live) => [...live.ranks]);
      assertEquals(carriers.toSorted((a, b) => a - b), session.carried);
      const keys = session.hosts.map(({ key }) => key);
      assertEquals(keys, keys.toSorted((a, b) => a - b));
      for (let rank = 0; rank < world; rank++) assert(session.state(rank) !== undefined);
    }
  }));
});
