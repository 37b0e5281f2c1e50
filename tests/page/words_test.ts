// What the page makes of numbers and states, without a browser.
import { assert, assertAlmostEquals, assertEquals } from "@std/assert";
import fc from "fast-check";
import * as format from "../../controller/page/browser/format.ts";
import {
  ceiling,
  median,
  paces,
  quantile,
  roundsPerMinute,
} from "../../controller/page/browser/statistics.ts";
import { branches, layOut } from "../../controller/page/browser/tree.ts";
import type { HostView, RankView, RoundView, StateDocument } from "../../observe/state.ts";
import { emptyDocument } from "../observe/documents.ts";

Deno.test("words: numbers, sizes and durations", () => {
  assertEquals([0, 7, 0.1234, 12.345, 1234567, 0.00012, 1e18].map(format.number), [
    ...["0", "7", "0.123", "12.3", "1,234,567", "1.2e-4", "1.00e+18"],
  ]);
  assertEquals([0, 999, 999.6e3, 102_000, 2.5e9].map(format.bytes), [
    ...["0 B", "999 B", "1 MB", "102 kB", "2.5 GB"],
  ]);
  assertEquals([0.2134, 34, 1_234, 200_000, 7_500_000, 180_000_000].map(format.duration), [
    ...["0.213 ms", "34 ms", "1.23 s", "3 min 20 s", "2 h 5 min", "2 d 2 h"],
  ]);
  assertEquals(format.ranges([0, 1, 2, 3, 5, 7, 8]), "0-3, 5, 7, 8");
  assertEquals(format.ranges([]), "");
  assertEquals(format.cut("a👍b👍", 3), "a👍…");
});

Deno.test("words: quantiles of few values", () => {
  assertEquals(median([]), undefined);
  assertEquals(median([3, 1, 2]), 2);
  assertEquals(quantile([1, 2, 3, 4], 1), 4);
});

function host(key: number, name: string, ranks: number[], connected = true): HostView {
  return {
    key,
    name,
    peer: "127.0.0.1:1",
    connected,
    sinceAtMs: 0,
    ranks,
    round: "waiting",
    frames: 0,
    bytesIn: 0,
    bytesOut: 0,
    mass: null,
  };
}

function round(number: number, hosts: readonly (readonly [HostView, number])[]): RoundView {
  const arrivals = hosts.map(([{ key, name, ranks }, arrivedMs]) => ({
    key,
    host: name,
    ranks,
    beganMs: 0,
    arrivedMs,
    bytes: 1,
    mass: 1,
    rankArrivals: null,
  }));
  return {
    round: number,
    kind: "model",
    startedAtMs: number * 500,
    durationMs: 10,
    mass: hosts.length,
    arrivals,
    ranks: hosts.length,
    late: [],
    lagMs: 0,
    lagOfMedianMs: 0,
    deadlineMs: 1,
    bytesIn: 1,
    bytesOut: 1,
  };
}

function session(hosts: HostView[], ranks: Partial<RankView>[], rounds: RoundView[] = []) {
  const empty = emptyDocument(ranks.length);
  const views = empty.ranks.map((rank, i) => ({ ...rank, ...ranks[i] }));
  return { ...empty, hosts, ranks: views, rounds } satisfies StateDocument;
}

Deno.test("words: a scale goes over all values, but not for a few that are far away", () => {
  assertEquals(ceiling([]), 1);
  assertEquals(ceiling([0, 0]), 1);
  assertAlmostEquals(ceiling([1, 2, 10]), 11);
  const far = [...Array(99).fill(10), 1_000];
  assertAlmostEquals(ceiling(far), 15);
  assertAlmostEquals(ceiling([...Array(99).fill(0), 7]), 7.7);
});

Deno.test("words: who is behind, how far, and how often the last", () => {
  const [a, b, c] = [host(0, "a", [0]), host(1, "b", [1]), host(2, "c", [2])];
  const rounds = [
    round(0, [[a, 1], [b, 4], [c, 9]]),
    round(1, [[a, 2], [c, 4], [b, 5]]),
    round(2, [[b, 1], [a, 2], [c, 12]]),
    round(3, [[a, 1]]),
  ];
  const late = [{ host: "a" }, { host: "b" }, { host: "c", timesLate: 2 }];
  const seen = paces(session([a, b, c], late, rounds));
  assertEquals(
    seen.map(({ host, rounds, behindMs, last, late }) => [host.name, rounds, behindMs, last, late]),
    [["a", 4, 0, 0, 0], ["b", 3, 3, 1, 0], ["c", 3, 8, 2, 2]],
  );
  assertEquals(roundsPerMinute(rounds), 120);
  assertEquals(roundsPerMinute(rounds.slice(0, 1)), undefined);
});

Deno.test("words: a rank that is gone stays with its host, also when two have one name", () => {
  const tree = branches(session(
    [host(0, "twin", [1]), host(2, "twin", [], false), host(4, "c", [4])],
    [
      { host: "twin", phase: "left" },
      { host: "twin", phase: "live" },
      { host: "twin", phase: "lost" },
      { host: "twin", phase: "lost" },
      { host: "c", phase: "live" },
      { phase: "expected" },
    ],
  ));
  assertEquals(
    tree.map(({ host, ranks }) => [host?.key, ranks.map(({ rank }) => rank)]),
    [[0, [0, 1]], [2, [2, 3]], [4, [4]], [undefined, [5]]],
  );
});

Deno.test("words: at every width no card leaves the picture, covers another or cuts a rank", () => {
  const counts = fc.array(fc.integer({ min: 0, max: 300 }), { minLength: 1, maxLength: 40 });
  fc.assert(fc.property(counts, fc.integer({ min: 240, max: 1400 }), (counts, width) => {
    const { cards, controller, height, ranks, radius, links } = layOut(counts, width);
    assertEquals([cards.length, links.length], [counts.length, counts.length]);
    for (const { x, y, width: wide, height: high } of [controller, ...cards]) {
      assert(x >= 0 && x + wide <= width + 0.5, `${x} + ${wide} in ${width}`);
      assert(y >= 0 && y + high <= height, `${y} + ${high} in ${height}`);
    }
    [controller, ...cards].forEach((a, i, all) => {
      for (const b of all.slice(i + 1)) {
        const apart = a.x + a.width <= b.x || b.x + b.width <= a.x ||
          a.y + a.height <= b.y || b.y + b.height <= a.y;
        assert(apart, `${JSON.stringify(a)} and ${JSON.stringify(b)}`);
      }
    });
    ranks.forEach((centres, i) => {
      assertEquals(centres.length, counts[i]);
      for (const { x, y } of centres) {
        assert(x - radius >= 0 && x + radius <= cards[i]!.width, `rank at ${x}`);
        assert(y + radius <= cards[i]!.height, `rank at ${y} in ${cards[i]!.height}`);
      }
    });
  }));
});
