/**
 * The JSON that the intake reads and writes; the OpenAPI document is made from the same schemas.
 *
 * @module
 */
import { z } from "zod";
import { newTelemetry } from "../../delta/telemetry.ts";
import type { PublisherTelemetry } from "../delta/core.ts";
import type {
  AcceptedJson,
  ContributionJson,
  PassDetailJson,
  PassJson,
  StartJson,
} from "./json.ts";
import type { Contribution, PassSpec, PassStatus } from "./pass.ts";
import type { AggregationPlan, PassPolicy } from "./policy.ts";
import {
  MAX_DEADLINE_MS,
  MAX_EXPECTED,
  MAX_LAYER_NAME,
  MAX_LAYERS,
  MAX_PEER_NAME,
} from "./pass.ts";

/** How long a pass collects when its initiator does not say, in milliseconds. */
export const DEFAULT_PASS_DEADLINE_MS = 10 * 60 * 1000;

const name = (max: number) => z.string().min(1).max(max).regex(/^[A-Za-z0-9._~-]+$/);
const peerName = name(MAX_PEER_NAME);
const layerName = name(MAX_LAYER_NAME);
const cid = z.string().regex(/^grad-[0-9a-f]{16}$/);
const shape = z.array(z.int().min(0).max(0xffff_ffff)).max(255);
const count = z.int().min(0);

/** What starts a pass. */
export const startSchema = z.strictObject({
  round: count.describe("The training round"),
  initiator: peerName.describe("Who starts it; with the round this names the pass"),
  expected: z.int().min(1).max(MAX_EXPECTED).describe("How many peers are waited for"),
  layers: z.array(z.strictObject({ name: layerName, shape: shape.optional() }))
    .min(1).max(MAX_LAYERS)
    .describe("What each peer delivers; a shape left out is that of the first contribution"),
  deadline_ms: z.int().min(1).max(MAX_DEADLINE_MS).default(DEFAULT_PASS_DEADLINE_MS)
    .describe("How long the pass collects"),
  quorum: z.int().min(1).optional()
    .describe("At the deadline, aggregate with so many peers instead of failing"),
  peers: z.array(peerName).max(MAX_EXPECTED).optional()
    .describe("The only peers that may contribute"),
  max_samples: count.optional().describe("Largest num_samples of a peer"),
  max_norm: z.number().positive().optional()
    .describe("Largest Euclidean norm of one layer's values"),
  consensus: z.boolean().default(false)
    .describe("The values are weights: the result is published as the consensus"),
});

const stateSchema = z.discriminatedUnion("kind", [
  z.strictObject({ kind: z.literal("Pending") }),
  z.strictObject({ kind: z.literal("CollectingGradients"), received: count, expected: count }),
  z.strictObject({ kind: z.literal("Aggregating") }),
  z.strictObject({ kind: z.literal("Complete"), cid }),
  z.strictObject({ kind: z.literal("Failed"), reason: z.string() }),
]);

const contributionSchema = z.strictObject({
  peer: peerName,
  layer: layerName,
  cid,
  num_samples: count,
  norm: z.number().min(0).describe("Euclidean norm of its values"),
  submitted_at_ms: count,
});

/** A pass, as the intake shows it. */
export const passSchema = z.strictObject({
  key: z.string(),
  round: count,
  initiator: peerName,
  state: stateSchema,
  received: count.describe("Peers that delivered every layer"),
  expected: count,
  quorum: count.optional(),
  consensus: z.boolean(),
  layers: z.array(z.strictObject({
    name: layerName,
    shape: shape.optional(),
    cid: cid.optional().describe("The aggregated layer, once the pass is Complete"),
  })),
  num_samples: count.optional().describe("Samples behind the result, once the pass is Complete"),
  aggregate: z.enum(["mean", "trimmed", "median"])
    .describe("Which mean is taken: weighted by samples, or by coordinate without weights"),
  clip_norm: z.number().positive().optional()
    .describe("Largest norm of a contribution; larger ones are scaled down to it"),
  trimmed: count.optional()
    .describe("Values of each coordinate left out at either end, once the pass is Complete"),
  clipped: z.array(z.strictObject({ peer: peerName, norm: z.number() })).optional()
    .describe("Who was scaled down, once the pass is Complete"),
  started_at_ms: count,
  deadline_at_ms: count,
});

/** A pass with what was contributed. */
export const passDetailSchema = passSchema.extend({
  contributions: z.array(contributionSchema),
});

/** All passes. */
export const passListSchema = z.strictObject({ active: count, passes: z.array(passSchema) });

/** The answer to a contribution. */
export const acceptedSchema = z.strictObject({
  cid,
  repeated: z.boolean().describe("The very same block was there before"),
  state: stateSchema,
});

/** The answer to a removal. */
export const removedSchema = z.strictObject({ removed: z.array(z.string()) });

const telemetrySchema = z.strictObject({
  queued: count.describe("Fragments put on outbound queues, once per peer"),
  sent: count.describe("Fragments written to peers"),
  received: count.describe("Fragments that came in"),
  applied: count.describe("Fragments whose values were added to weights"),
  rejected: count.describe("Fragments that were refused"),
  last_session: z.string().nullable(),
  last_fragment_bytes: count,
  last_error: z.string().nullable(),
});

/** What the delta publisher tells of itself. */
export const deltasSchema = z.strictObject({
  sid: z.string().describe("The publisher's run"),
  version: count.describe("The last published consensus, from 1; 0 before the first one"),
  telemetry: telemetrySchema,
  peers: z.array(z.strictObject({
    address: z.string(),
    state: z.enum(["idle", "dialing", "open"]),
    replica: z.boolean().describe("It asked for a snapshot"),
    waiting: count,
    dropped: count,
    sent: count,
    last_error: z.string().nullable(),
  })),
});

/** What the delta publisher tells of itself, as JSON; before it has started, nothing has happened. */
export function deltasJson(
  telemetry: PublisherTelemetry | undefined,
): z.infer<typeof deltasSchema> {
  const { sid = "", version = 0, bus = newTelemetry(), peers = [] } = telemetry ?? {};
  return {
    sid,
    version,
    telemetry: {
      queued: bus.queued,
      sent: bus.sent,
      received: bus.received,
      applied: bus.applied,
      rejected: bus.rejected,
      last_session: bus.lastSession ?? null,
      last_fragment_bytes: bus.lastFragmentBytes,
      last_error: bus.lastError ?? null,
    },
    peers: peers.map(({ lastError, ...peer }) => ({ ...peer, last_error: lastError ?? null })),
  };
}

/** Why a request was refused. */
export const errorSchema = z.strictObject({
  error: z.strictObject({
    code: z.string().describe("One word a cause"),
    message: z.string().describe("What was being done, what was expected, and what came"),
  }),
});

// The types that users see are written out; here the compiler holds both against each other.
startSchema satisfies z.ZodType<unknown, StartJson>;
passSchema satisfies z.ZodType<PassJson>;
passDetailSchema satisfies z.ZodType<PassDetailJson>;
acceptedSchema satisfies z.ZodType<AcceptedJson>;

/** The pass that a request asks for. */
export function specOf(start: z.infer<typeof startSchema>): PassSpec {
  return {
    round: start.round,
    initiator: start.initiator,
    expected: start.expected,
    layers: start.layers,
    deadlineMs: start.deadline_ms,
    quorum: start.quorum,
    peers: start.peers,
    maxSamples: start.max_samples,
    maxNorm: start.max_norm,
    consensus: start.consensus,
  };
}

/** What a finished pass has beyond its status. */
export interface ResultNames {
  /** Samples behind the result. */
  readonly numSamples: number;
  /** Name of each aggregated layer, by layer. */
  readonly cids: ReadonlyMap<string, string>;
  /** How it was averaged. */
  readonly plan: Pick<AggregationPlan, "trim" | "clipped">;
}

/** A pass, as the intake shows it. */
export function passJson(
  { key, spec, state, received, startedAtMs, deadlineAtMs }: PassStatus,
  shapes: ReadonlyMap<string, readonly number[]>,
  result: ResultNames | undefined,
  { aggregation, clipNorm }: PassPolicy,
): PassJson {
  const { trim, clipped = [] } = result?.plan ?? {};
  return {
    key,
    round: spec.round,
    initiator: spec.initiator,
    state,
    received,
    expected: spec.expected,
    ...(spec.quorum === undefined ? {} : { quorum: spec.quorum }),
    consensus: spec.consensus ?? false,
    layers: spec.layers.map(({ name, shape }) => {
      const dims = shape ?? shapes.get(name);
      const cid = result?.cids.get(name);
      return {
        name,
        ...(dims === undefined ? {} : { shape: [...dims] }),
        ...(cid === undefined ? {} : { cid }),
      };
    }),
    ...(result === undefined ? {} : { num_samples: result.numSamples }),
    aggregate: aggregation.kind,
    ...(clipNorm === undefined ? {} : { clip_norm: clipNorm }),
    ...(trim === undefined ? {} : { trimmed: trim }),
    ...(clipped.length === 0 ? {} : { clipped: clipped.map((one) => ({ ...one })) }),
    started_at_ms: startedAtMs,
    deadline_at_ms: deadlineAtMs,
  };
}

/** A contribution, as the intake shows it. */
export function contributionJson(
  { peer, layer, cid, numSamples, squares, submittedAtMs }: Contribution,
): ContributionJson {
  return {
    peer,
    layer,
    cid,
    num_samples: numSamples,
    norm: Math.sqrt(squares),
    submitted_at_ms: submittedAtMs,
  };
}
