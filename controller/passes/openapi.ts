/**
 * The intake's OpenAPI document, made from the schemas that it checks requests with.
 *
 * @module
 */
import { z } from "zod";
import { AUTH_HEADERS, AUTH_WINDOW_MS } from "./auth.ts";
import {
  acceptedSchema,
  deltasSchema,
  errorSchema,
  passDetailSchema,
  passListSchema,
  passSchema,
  removedSchema,
  startSchema,
} from "./schemas.ts";

/** Any JSON value. */
export type Json = null | boolean | number | string | readonly Json[] | {
  readonly [key: string]: Json;
};

const SCHEMAS = {
  StartPass: startSchema,
  Pass: passSchema,
  PassDetail: passDetailSchema,
  PassList: passListSchema,
  Accepted: acceptedSchema,
  Removed: removedSchema,
  Deltas: deltasSchema,
  Error: errorSchema,
};

type SchemaName = keyof typeof SCHEMAS;

const OCTETS = "application/octet-stream";

function json(schema: SchemaName): Json {
  return { "application/json": { schema: { $ref: `#/components/schemas/${schema}` } } };
}

function answers(good: Record<string, Json>, bad: Record<string, string>): Json {
  const errors = Object.entries({
    ...bad,
    401: "Not signed, signed wrongly, too old or repeated",
  }).map(([status, description]) => [status, { description, content: json("Error") }]);
  return { ...good, ...Object.fromEntries(errors) };
}

function parameter(name: string, description: string, schema: Json): Json {
  return { name, in: "path", required: true, description, schema };
}

const KEY = parameter("key", "The pass: {round}-{initiator}", { type: "string" });
const CID = parameter("cid", "The block's name", {
  type: "string",
  pattern: "^grad-[0-9a-f]{16}$",
});
const text: Json = { type: "string" };

const PATHS: Json = {
  "/v1/passes": {
    post: {
      operationId: "startPass",
      summary: "Starts a backward pass",
      requestBody: { required: true, content: json("StartPass") },
      responses: answers(
        { 201: { description: "Started", content: json("Pass") } },
        {
          400: "The body is not what StartPass says",
          409: "PassExists",
          503: "TooManyPasses, or too many bodies at once",
        },
      ),
    },
    get: {
      operationId: "listPasses",
      summary: "Lists all passes, oldest first",
      responses: answers({ 200: { description: "The passes", content: json("PassList") } }, {}),
    },
    delete: {
      operationId: "removePasses",
      summary: "Removes the terminal passes of earlier rounds; active ones stay",
      parameters: [{
        name: "before_round",
        in: "query",
        required: true,
        schema: { type: "integer", minimum: 0 },
      }],
      responses: answers(
        { 200: { description: "Their keys", content: json("Removed") } },
        { 400: "before_round is missing or not an integer >= 0" },
      ),
    },
  },
  "/v1/passes/{key}": {
    get: {
      operationId: "readPass",
      summary: "Reads a pass and what was contributed to it",
      parameters: [KEY],
      responses: answers(
        { 200: { description: "The pass", content: json("PassDetail") } },
        { 404: "PassNotFound" },
      ),
    },
  },
  "/v1/passes/{key}/peers/{peer}/layers/{layer}": {
    put: {
      operationId: "contribute",
      summary: "Delivers one layer of one peer",
      parameters: [
        KEY,
        parameter("peer", "Who contributes", text),
        parameter("layer", "Which", text),
      ],
      requestBody: {
        required: true,
        description: "A GARW block",
        content: { [OCTETS]: { schema: { type: "string", format: "binary" } } },
      },
      responses: answers(
        { 200: { description: "It is in", content: json("Accepted") } },
        {
          400: "The body is no block, or not the one that was signed",
          403: "UnknownPeer",
          404: "PassNotFound or UnknownLayer",
          408: "The body came too slowly",
          409: "PassAlreadyTerminal, PassAggregating, ConflictingContribution or CidCollision",
          413: "The body is too large",
          422: "ShapeMismatch, InvalidSamples, NonFinite or NormExceeded",
          503: "Too many bodies at once; try again",
          507: "The block store is full",
        },
      ),
    },
  },
  "/v1/deltas": {
    get: {
      operationId: "readDeltas",
      summary: "Reads the telemetry of the delta publisher",
      responses: answers(
        { 200: { description: "The telemetry", content: json("Deltas") } },
        { 404: "The controller publishes no deltas" },
      ),
    },
  },
  "/v1/blocks/{cid}": {
    get: {
      operationId: "readBlock",
      summary: "Reads a block: a contribution, an aggregated layer or a whole result",
      parameters: [CID],
      responses: answers(
        {
          200: {
            description: "The block as GARW, with shape [number of values]",
            content: { [OCTETS]: { schema: { type: "string", format: "binary" } } },
          },
        },
        { 400: "InvalidCid", 404: "BlockNotFound", 500: "CorruptBlock" },
      ),
    },
  },
};

function securitySchemes(): Json {
  return Object.fromEntries(
    Object.entries(AUTH_HEADERS).map((
      [part, name],
    ) => [part, { type: "apiKey", in: "header", name }]),
  );
}

/**
 * The document.
 *
 * @param version Version of the program.
 */
export function openApiDocument(version: string): { readonly [key: string]: Json } {
  const schemas = Object.fromEntries(
    Object.entries(SCHEMAS).map(([name, schema]) => {
      const io = name === "StartPass" ? "input" : "output";
      const { $schema: _, ...rest } = z.toJSONSchema(schema, { io });
      return [name, rest as Json];
    }),
  );
  return {
    openapi: "3.1.0",
    info: {
      title: "Tierfold federated intake",
      version,
      license: { name: "MIT", identifier: "MIT" },
      description:
        "Backward passes: peers deliver gradient blocks over HTTP, the controller averages " +
        "them by the same fold as any host's frames. Every request is signed: " +
        `${AUTH_HEADERS.signature} is HMAC-SHA256 (lower-case hex) under the session salt of the lines ` +
        "METHOD, PATH with query, SHA-256 of the body, TIMESTAMP (milliseconds since 1970) and NONCE, " +
        `joined by line feeds; it is good for ${AUTH_WINDOW_MS / 1000} seconds and one request.`,
    },
    security: [Object.fromEntries(Object.keys(AUTH_HEADERS).map((part) => [part, []]))],
    paths: PATHS,
    components: { schemas, securitySchemes: securitySchemes() },
  };
}
