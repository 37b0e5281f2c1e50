/**
 * The figures of `deno task bench:hosts` and the tables made of them.
 *
 * @module
 */

import type { Machine, Skip } from "./figures.ts";
import { formatMs, formatSize } from "./sizes.ts";
import type { Table } from "./table.ts";
import { spread } from "./table.ts";

/** Tierfold with the controller on a host of its own, or beside the first relay; or gloo. */
export type HostsName = "tierfold" | "tierfold-beside" | "gloo";

/** Rounds across hosts. */
export interface HostsRow {
  /** Whose. */
  name: HostsName;
  /** Hosts with ranks. */
  hosts: number;
  /** Ranks of each of them. */
  ranks_per_host: number;
  /** Speed of every link, in bits per second. */
  link_bit_s: number;
  /** f32 bytes per rank. */
  bytes: number;
  /** Median round over all ranks, rounds and runs, in milliseconds. */
  median_ms: number;
  /** 99th percentile, in milliseconds. */
  p99_ms: number;
  /** Medians of the interleaved runs, in milliseconds. */
  run_medians_ms: number[];
  /** Measured rounds of one run. */
  rounds: number;
  /** What the links alone need, star or ring, in milliseconds. */
  bound_ms: number;
  /** TCP payload that the last host sent per round, in bytes, retransmissions included. */
  uplink_bytes: number;
  /** TCP payload that it received per round, in bytes. */
  downlink_bytes: number;
}

/** Traffic of one host for a number of ranks on it. */
export interface UplinkRow {
  /** Ranks of each host. */
  ranks_per_host: number;
  /** f32 bytes per rank. */
  bytes: number;
  /** TCP payload sent per round, in bytes. */
  uplink_bytes: number;
  /** TCP payload received per round, in bytes. */
  downlink_bytes: number;
  /** Bytes sent per round with Ethernet, IP and TCP headers and acknowledgements. */
  uplink_raw_bytes: number;
  /** Bytes received per round, likewise. */
  downlink_raw_bytes: number;
}

/** Everything that `deno task bench:hosts` found out. */
export interface HostsFigures {
  /** When it ended, ISO 8601, UTC. */
  date: string;
  /** Where. */
  machine: Machine;
  /** Rounds. */
  rows: HostsRow[];
  /** Traffic per host against its number of ranks. */
  uplink: UplinkRow[];
  /** What was left out. */
  skipped: Skip[];
}

/** What the ring does better, and why: printed beside the figures. */
export const RING_WINS: string =
  "Where a round is limited by bytes, a ring wins: its 2 (N - 1) / N model images leave and reach every " +
  "host at the same time, over all links at once, while the star's controller takes hosts images in and " +
  "gives hosts images out over its one link. The star needs 2 hops up and 2 down whatever the number " +
  "of ranks, a ring 2 (N - 1) steps one after another, so small frames are the star's.";

/** Rounds across hosts: times, each one's own bound, and the traffic of a host. */
export function hostsTable(rows: readonly HostsRow[]): Table {
  return {
    header: [
      "who",
      "hosts x ranks",
      "link",
      "size",
      "median",
      "runs",
      "bound",
      "x bound",
      "x gloo",
      "up per host",
      "down per host",
    ],
    rows: rows.map((row) => {
      const gloo = rows.find((other) =>
        other.name === "gloo" && other.hosts === row.hosts && other.bytes === row.bytes &&
        other.link_bit_s === row.link_bit_s
      );
      return [
        row.name,
        `${row.hosts} x ${row.ranks_per_host}`,
        formatLink(row.link_bit_s),
        formatSize(row.bytes),
        formatMs(row.median_ms),
        spread(row.run_medians_ms),
        formatMs(row.bound_ms),
        (row.median_ms / row.bound_ms).toFixed(2),
        gloo === undefined ? "" : (row.median_ms / gloo.median_ms).toFixed(2),
        Math.round(row.uplink_bytes).toLocaleString("en-US"),
        Math.round(row.downlink_bytes).toLocaleString("en-US"),
      ];
    }),
  };
}

/** Bytes per host and round against the ranks of a host. */
export function uplinkTable(rows: readonly UplinkRow[]): Table {
  const number = (value: number) => Math.round(value).toLocaleString("en-US");
  return {
    header: [
      "ranks per host",
      "model",
      "up",
      "up - model",
      "down",
      "down - model",
      "up with headers",
      "down with headers",
    ],
    rows: rows.map((row) => [
      String(row.ranks_per_host),
      number(row.bytes),
      number(row.uplink_bytes),
      number(row.uplink_bytes - row.bytes),
      number(row.downlink_bytes),
      number(row.downlink_bytes - row.bytes),
      number(row.uplink_raw_bytes),
      number(row.downlink_raw_bytes),
    ]),
  };
}

/** A link's speed with its unit. */
export function formatLink(bitsPerSecond: number): string {
  return bitsPerSecond >= 1e9 ? `${bitsPerSecond / 1e9} Gbit/s` : `${bitsPerSecond / 1e6} Mbit/s`;
}
