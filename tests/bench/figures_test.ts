import { assertEquals, assertThrows } from "@std/assert";
import {
  boundMs,
  hashedImages,
  ringBoundMs,
  sealedImages,
  starBoundMs,
} from "../../bench/bound.ts";
import type { BenchFigures, DetailRow } from "../../bench/figures.ts";
import { median, quantile, rawFigures } from "../../bench/figures.ts";
import { formatMs, formatSize, parseSize } from "../../bench/sizes.ts";

Deno.test("quantiles go by the nearest rank, and the median of an even count by the middle two", () => {
  assertEquals(median([3, 1, 2]), 2);
  assertEquals(median([4, 1, 3, 2]), 2.5);
  assertEquals(quantile([5, 1], 0.99), 5);
  assertEquals(quantile(Array.from({ length: 200 }, (_, i) => i + 1), 0.99), 198);
  assertThrows(() => median([]), RangeError);
});

Deno.test("4 ranks on one host hash 19 images, which bound a 64 MiB round", () => {
  assertEquals(hashedImages(4, 1), 19);
  assertEquals(hashedImages(8, 4), 46);
  assertEquals([sealedImages(4, 1), sealedImages(8, 4)], [16, 37]);
  const ms = boundMs({ ranks: 4, hosts: 1, wireBytes: 64 * 1024 ** 2 }, 1.44, 2);
  assertEquals(Math.round(ms), 443);
});

Deno.test("the star's bound grows with hosts, the ring's does not", () => {
  const bytes = 125e6;
  assertEquals(starBoundMs(2, bytes, 1e9), 4_000);
  assertEquals(starBoundMs(3, bytes, 1e9), 6_000);
  assertEquals(ringBoundMs(4, bytes, 1e9), 1_500);
  assertEquals(ringBoundMs(8, bytes, 1e9), 1_750);
});

Deno.test("sizes are read and written in the units people use", () => {
  for (const text of ["4 KB", "64 KiB", "1 MiB", "256 MiB", "2 GiB", "12 B"]) {
    assertEquals(formatSize(parseSize(text)), text);
  }
  for (const text of ["", "0", "3", "6", "4XB", "-4KB", "1.5MiB"]) {
    assertThrows(() => parseSize(text), RangeError, "multiple of 4");
  }
  assertEquals(formatMs(0.4567), "0.457 ms");
  assertEquals(formatMs(1234.5), "1,235 ms");
});

Deno.test("--json holds the keys it promises, and no others", () => {
  const row: DetailRow = {
    name: "tierfold",
    ranks: 4,
    bytes: 4_000,
    median_ms: 1,
    p99_ms: 2,
    cpu_s: 0.001,
    rss_mb: 80,
    bound_ms: 0.5,
    run_medians_ms: [1],
    rounds: 9,
    roles: {},
  };
  const { bound_ms: _, ...unbound } = row;
  const figures: BenchFigures = {
    date: "",
    machine: { cpu: "", cores: 2, memory_gib: 1, kernel: "", deno: "" },
    hash_gb_s: 1.4,
    hash_all_gb_s: 1.3,
    bound_ms: 443,
    runs: 1,
    rows: [row, { ...unbound, name: "gloo" }],
    skipped: [],
  };
  const raw = rawFigures(figures);
  assertEquals(Object.keys(raw).sort(), ["bound_ms", "hash_gb_s", "machine", "rows"]);
  const keys = ["bytes", "cpu_s", "median_ms", "name", "p99_ms", "ranks", "rss_mb"];
  assertEquals(raw.rows.map((one) => Object.keys(one).sort()), [
    ["bound_ms", ...keys].sort(),
    keys,
  ]);
});
