/**
 * The numbers to reach, each next to what was measured.
 *
 * @module
 */

import { hashedImages, sealedImages } from "./bound.ts";
import type { BenchFigures, ContenderName, DetailRow } from "./figures.ts";
import type { HostsFigures, HostsName, HostsRow } from "./hosts_figures.ts";
import type { ProfileFigures } from "./profile_figures.ts";
import { formatMs } from "./sizes.ts";
import type { SoakFigures } from "./soak_figures.ts";
import type { Table } from "./table.ts";

const MIB = 1024 ** 2;

/** Bytes that a round's frame and record add to the model on the relay leg, for one tensor of one dim. */
const FRAMING_BYTES = 64;

/** Memory that a soak's processes may gain between its second and its last fifth, in MB. */
const FLAT_MB = 8;

/** The part of the bound's bytes that sealed channels hash, for 4 ranks on one host. */
const SEALED_SHARE = sealedImages(4, 1) / hashedImages(4, 1);

/** What a relay may use besides its images, in MB. */
const RELAY_EXTRA_MB = 128 * MIB / 1e6;

/** One number to reach. */
export interface Target {
  /** What is measured. */
  what: string;
  /** What it shall be. */
  toReach: string;
  /** What it is; nothing when it was not measured. */
  measured?: string;
  /** Whether it is reached. */
  reached?: boolean;
}

/** The figures from which the targets are judged; any of them may be missing. */
export interface AllFigures {
  /** `deno task bench`. */
  bench?: BenchFigures;
  /** `deno task bench:hosts`. */
  hosts?: HostsFigures;
  /** `deno task bench:soak`. */
  soak?: SoakFigures;
  /** `deno task bench:profile`. */
  profile?: ProfileFigures;
  /** The page that `deno task bench:kernels` wrote. */
  kernels?: string;
}

/** Judges every target. */
export function targets(all: AllFigures): Target[] {
  return [
    ...benchTargets(all.bench),
    ...hostsTargets(all.hosts),
    kernelTarget(all.kernels),
    ...runTargets(all),
  ];
}

/** Repeats the verdict of the kernels' own page. */
function kernelTarget(page: string | undefined): Target {
  const verdict = /simd was [^.]+\. At [^.]+\./.exec(page ?? "")?.[0];
  return {
    what: "fold kernel, 4 inputs",
    toReach: "at least 90 % of memcpy-bound bandwidth, and never slower than plain JS",
    ...(verdict === undefined ? {} : {
      measured: `${verdict.replaceAll("\n", " ")} See [kernels](performance/kernels.md)`,
      reached: !/simd was slower|missed/.test(verdict),
    }),
  };
}

function benchTargets(bench: BenchFigures | undefined): Target[] {
  const find = (name: ContenderName, bytes: number): DetailRow | undefined =>
    bench?.rows.find((row) => row.name === name && row.ranks === 4 && row.bytes === bytes);
  const large = find("tierfold", 64 * MIB);
  const largeGloo = find("gloo", 64 * MIB);
  const narrow = find("tierfold-bf16", 64 * MIB);
  const small = find("tierfold", 4_000);
  const smallGloo = find("gloo", 4_000);
  const ratio = (
    what: string,
    limit: number,
    unit: string,
    row: DetailRow | undefined,
    of: number | undefined,
  ): Target => ({
    what,
    toReach: `at most ${limit} x ${unit}`,
    ...(row === undefined || of === undefined ? {} : {
      measured: `${(row.median_ms / of).toFixed(2)} x (${formatMs(row.median_ms)} / ${
        formatMs(of)
      })`,
      reached: row.median_ms <= limit * of,
    }),
  });
  const memory = worstRelay(bench);
  return [
    noted(
      ratio("64 MiB per rank, 4 ranks, full round", 1.75, "bound", large, large?.bound_ms),
      large?.bound_ms === undefined
        ? ""
        : `; ${(large.median_ms / (large.bound_ms * SEALED_SHARE)).toFixed(2)} x what sealed ` +
          "channels hash",
    ),
    ratio(
      "the same against gloo, which authenticates nothing",
      4.2,
      "gloo",
      large,
      largeGloo?.median_ms,
    ),
    ratio("the same with bf16 on the wire", 0.6, "the f32 round", narrow, large?.median_ms),
    {
      what: "4 KB per rank (1,000 f32), 4 ranks",
      toReach: "below 1 ms, and below gloo's",
      ...(small === undefined ? {} : {
        measured: formatMs(small.median_ms) +
          (smallGloo === undefined ? "" : `; gloo ${formatMs(smallGloo.median_ms)}`),
        reached: small.median_ms < 1 && small.median_ms < (smallGloo?.median_ms ?? Infinity),
      }),
    },
    {
      what: "relay peak memory, K ranks, the worst of all rows",
      toReach: "K + 1 images and 128 MiB",
      ...(memory === undefined ? {} : {
        measured: `${Math.round(memory.rss)} MB of ${Math.round(memory.limit)} MB ` +
          `(${memory.row.ranks} ranks, ${Math.round(memory.row.bytes / MIB)} MiB)`,
        reached: memory.rss <= memory.limit,
      }),
    },
  ];
}

/** A target with more said about what was measured. */
function noted(target: Target, note: string): Target {
  return target.measured === undefined ? target : { ...target, measured: target.measured + note };
}

/** The row whose relay came closest to its limit of memory, or passed it by most. */
function worstRelay(
  bench: BenchFigures | undefined,
): { row: DetailRow; rss: number; limit: number } | undefined {
  const candidates = (bench?.rows ?? []).flatMap((row) => {
    const rss = row.roles["relay"]?.rss_mb;
    if (rss === undefined || row.name !== "tierfold") return [];
    return [{ row, rss, limit: (row.ranks + 1) * row.bytes / 1e6 + RELAY_EXTRA_MB }];
  });
  return candidates.toSorted((a, b) => b.rss / b.limit - a.rss / a.limit)[0];
}

function hostsTargets(hosts: HostsFigures | undefined): Target[] {
  const find = (name: HostsName, count: number, bytes: number): HostsRow | undefined =>
    hosts?.rows.find((row) =>
      row.name === name && row.hosts === count && row.bytes === bytes && row.link_bit_s === 1e9
    );
  const star = ([2, 4] as const).flatMap((count) =>
    (["tierfold", "tierfold-beside"] as const).map((name): Target => {
      const row = find(name, count, 16 * MIB);
      const gloo = find("gloo", count, 16 * MIB);
      const where = name === "tierfold"
        ? "controller on its own host"
        : "controller beside a relay";
      return {
        what: `${count} hosts x 2 ranks, 1 Gbit/s, 16 MiB, ${where}`,
        toReach: "at most 1.15 x the star's bound",
        ...(row === undefined ? {} : {
          measured: `${(row.median_ms / row.bound_ms).toFixed(2)} x (${formatMs(row.median_ms)})` +
            (gloo === undefined ? "" : `; gloo ${formatMs(gloo.median_ms)}`),
          reached: row.median_ms <= 1.15 * row.bound_ms,
        }),
      };
    })
  );
  const small = find("tierfold", 4, 4_000);
  const smallGloo = find("gloo", 4, 4_000);
  const framing = (hosts?.uplink ?? []).flatMap((row) => [
    row.uplink_bytes - row.bytes,
    row.downlink_bytes - row.bytes,
  ]);
  return [
    ...star,
    {
      what: "4 hosts x 2 ranks, 4 KB: 2 hops up, 2 down",
      toReach: "below 2 ms, and below gloo's",
      ...(small === undefined ? {} : {
        measured: formatMs(small.median_ms) +
          (smallGloo === undefined ? "" : `; gloo ${formatMs(smallGloo.median_ms)}`),
        reached: small.median_ms < 2 && small.median_ms < (smallGloo?.median_ms ?? Infinity),
      }),
    },
    {
      what: "bytes per host and round, each way, for 1, 2, 4 and 8 ranks on the host",
      toReach: `model + ${FRAMING_BYTES} bytes`,
      ...(framing.length === 0 ? {} : {
        measured: `model + ${Math.min(...framing)} to ${Math.max(...framing)} bytes`,
        reached: Math.max(...framing) <= FRAMING_BYTES,
      }),
    },
  ];
}

function runTargets({ profile, soak }: AllFigures): Target[] {
  const stalls = profile?.stalls ?? [];
  const many = soak?.soaks.find(({ name }) => name === "many");
  const large = soak?.soaks.find(({ name }) => name === "large");
  const soaked = (what: string, toReach: string, one: typeof many): Target => {
    if (one === undefined) return { what, toReach };
    const growth = Object.entries(one.memory)
      .map(([role, { early_mb, late_mb }]) => ({ role, mb: late_mb - early_mb }));
    const text = growth.map(({ role, mb }) => `${role} ${mb >= 0 ? "+" : ""}${mb.toFixed(1)} MB`);
    return {
      what,
      toReach,
      measured: `${one.rounds.toLocaleString("en-US")} rounds, ` +
        `${one.clean_end ? "no error" : "an error at the end"}; ${text.join(", ")}`,
      reached: one.clean_end && growth.every(({ mb }) => mb <= FLAT_MB),
    };
  };
  return [
    {
      what: "longest stall of an event loop in a 64 MiB round",
      toReach: "50 ms",
      ...(stalls.length === 0 ? {} : {
        measured: stalls.map(({ role, longest_ms }) => `${role} ${formatMs(longest_ms)}`).join(
          ", ",
        ),
        reached: stalls.every(({ longest_ms }) => longest_ms <= 50),
      }),
    },
    soaked("256 ranks on 32 relays, tiny frames", "1,000 rounds, no error, no growth", many),
    soaked("4 ranks, 64 MiB", "200 rounds, no growth", large),
  ];
}

/** The targets as a table. */
export function targetTable(list: readonly Target[]): Table {
  return {
    header: ["what", "to reach", "measured", "reached"],
    rows: list.map(({ what, toReach, measured, reached }) => [
      what,
      toReach,
      measured ?? "not measured",
      reached === undefined ? "" : reached ? "yes" : "no",
    ]),
  };
}
