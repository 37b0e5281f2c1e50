/**
 * The HTTP intake: signed requests in, passes and blocks out.
 *
 * @module
 */
import { getLogger } from "@logtape/logtape";
import { VERSION } from "../../cli/version.ts";
import { InvariantError } from "../../wire/errors.ts";
import { GarwError } from "../../wire/garw.ts";
import type { PublisherTelemetry } from "../delta/core.ts";
import { AuthError, RequestVerifier } from "./auth.ts";
import { type Body, BodyBudget, BodyError, withBody } from "./body.ts";
import { openApiDocument } from "./openapi.ts";
import { PassError } from "./pass.ts";
import type { AcceptedJson } from "./json.ts";
import { deltasJson, specOf, startSchema } from "./schemas.ts";
import type { PassService } from "./service.ts";
import { StoreError } from "./store.ts";

const log = getLogger(["tierfold", "intake"]);

/** Most bytes of a JSON body: a pass with 4,096 layers and 10,000 peers fits. */
const MAX_JSON_BYTES = 2 * 1024 ** 2;

/** What an {@link Intake} works with. */
export interface IntakeOptions {
  /** The passes. */
  readonly service: PassService;
  /** The session salt, 16 bytes: the key of every request's signature. */
  readonly salt: Uint8Array;
  /** Most bytes of one block, 256 MiB unless given. */
  readonly maxBlockBytes?: number;
  /** Most bytes of all bodies under way, twice each, 1 GiB unless given. */
  readonly maxBodiesBytes?: number;
  /** Longest time for a body, in milliseconds; a minute unless given. */
  readonly bodyDeadlineMs?: number;
  /** What the delta publisher tells of itself, where there is one. */
  readonly deltas?: () => PublisherTelemetry | undefined;
}

/** A request that cannot be answered, before it comes to the passes. */
class RequestError extends Error {
  override readonly name = "RequestError";

  constructor(readonly status: number, readonly code: string, message: string) {
    super(message);
  }
}

const STATUS: Readonly<Record<string, number>> = {
  MissingSignature: 401,
  StaleTimestamp: 401,
  BadSignature: 401,
  ReplayedNonce: 401,
  BodyHashMismatch: 400,
  TooManyRequests: 503,
  InvalidPass: 400,
  PassExists: 409,
  PassNotFound: 404,
  PassAlreadyTerminal: 409,
  PassAggregating: 409,
  TooManyPasses: 503,
  TooManyPeers: 409,
  UnknownPeer: 403,
  UnknownLayer: 404,
  ConflictingContribution: 409,
  InvalidSamples: 422,
  ShapeMismatch: 422,
  NonFinite: 422,
  NormExceeded: 422,
  InvalidMagic: 400,
  TruncatedData: 400,
  TrailingData: 400,
  BodyTooLarge: 413,
  BodyTooSlow: 408,
  BodyBroken: 400,
  Busy: 503,
  InvalidCid: 400,
  BlockNotFound: 404,
  CidCollision: 409,
  StoreFull: 507,
};

function respond(status: number, body: unknown, headers: Record<string, string> = {}): Response {
  return new Response(`${JSON.stringify(body)}\n`, {
    status,
    headers: { "content-type": "application/json", "cache-control": "no-store", ...headers },
  });
}

function errorResponse(status: number, code: string, message: string): Response {
  const headers: Record<string, string> = status === 503 ? { "retry-after": "1" } : {};
  return respond(status, { error: { code, message } }, headers);
}

/** Answers the requests below /v1/ and /openapi.json. */
export class Intake {
  readonly #options: IntakeOptions;
  readonly #verifier: RequestVerifier;
  readonly #budget: BodyBudget;
  readonly #document = respond(200, openApiDocument(VERSION));

  /** Starts without any request seen. */
  constructor(options: IntakeOptions) {
    this.#options = options;
    this.#verifier = new RequestVerifier(options.salt);
    this.#budget = new BodyBudget(options.maxBodiesBytes ?? 1024 ** 3);
  }

  /**
   * Answers a request; never rejects.
   *
   * @returns Undefined when the path is none of the intake's.
   */
  async handle(request: Request): Promise<Response | undefined> {
    const url = new URL(request.url);
    if (url.pathname === "/openapi.json" && request.method === "GET") return this.#document.clone();
    if (url.pathname !== "/v1" && !url.pathname.startsWith("/v1/")) return undefined;
    try {
      const path = url.pathname + url.search;
      const hash = this.#verifier.verify(request.method, path, request.headers, Date.now());
      return await this.#route(request, url, hash);
    } catch (error) {
      return this.#refuse(request, url, error);
    } finally {
      // What was not read is not waited for.
      if (request.body !== null && !request.bodyUsed) await request.body.cancel().catch(() => {});
    }
  }

  #refuse(request: Request, url: URL, error: unknown): Response {
    if (error instanceof InvariantError) throw error;
    if (error instanceof RequestError) {
      return errorResponse(error.status, error.code, error.message);
    }
    const known = error instanceof PassError || error instanceof AuthError ||
      error instanceof BodyError || error instanceof StoreError || error instanceof GarwError;
    const where = { method: request.method, path: url.pathname, error };
    if (!known) {
      log.error("answering {method} {path}: {error}", where);
      return errorResponse(500, "Internal", "answering the request failed here; the log says why");
    }
    const status = STATUS[error.code] ?? 500;
    const level = status === 401 || status >= 500 ? "warning" : "info";
    log[level]("refused {method} {path}: {error}", where);
    return errorResponse(status, error.code, error.message);
  }

  async #route(request: Request, url: URL, hash: string): Promise<Response> {
    const { service, deltas } = this.#options;
    const [, , what, first, peers, peer, layers, layer, ...rest] = url.pathname.split("/");
    const depth = url.pathname.split("/").length - 2;
    if (what === "passes" && depth === 1) {
      return await this.#only(request, {
        GET: () => respond(200, { active: service.activeCount, passes: service.list() }),
        POST: () => this.#start(request, hash),
        DELETE: () => this.#remove(url),
      });
    }
    if (what === "passes" && depth === 2) {
      return await this.#only(request, { GET: () => respond(200, service.detail(first!)) });
    }
    if (what === "passes" && depth === 6 && peers === "peers" && layers === "layers") {
      return await this.#only(request, {
        PUT: () => this.#contribute(request, hash, first!, peer!, layer!),
      });
    }
    if (what === "deltas" && depth === 1 && deltas !== undefined) {
      return await this.#only(request, {
        GET: () => respond(200, deltasJson(deltas())),
      });
    }
    if (what === "blocks" && depth === 2) {
      return await this.#only(request, { GET: () => this.#block(first!) });
    }
    throw new RequestError(
      404,
      "NoSuchPath",
      `there is nothing at ${url.pathname}${
        rest.length > 0 ? "" : "; /openapi.json says what there is"
      }`,
    );
  }

  async #only(
    request: Request,
    methods: Readonly<Record<string, () => Response | Promise<Response>>>,
  ): Promise<Response> {
    const action = Object.hasOwn(methods, request.method) ? methods[request.method] : undefined;
    if (action !== undefined) return await action();
    const allow = Object.keys(methods).join(", ");
    const response = errorResponse(
      405,
      "MethodNotAllowed",
      `${request.method} is not possible here: ${allow} are`,
    );
    response.headers.set("allow", allow);
    return response;
  }

  /** Reads a body, and believes it only if it is the one that was signed. */
  #signedBody<T>(
    request: Request,
    hash: string,
    maxBytes: number,
    use: (body: Body) => Promise<T>,
  ): Promise<T> {
    const deadlineMs = this.#options.bodyDeadlineMs ?? 60_000;
    return withBody(request, { maxBytes, deadlineMs, budget: this.#budget }, (body) => {
      if (body.sha256 !== hash) {
        throw new AuthError(
          "BodyHashMismatch",
          `the body hashes to ${body.sha256}, the signed headers say ${hash}`,
        );
      }
      return use(body);
    });
  }

  #start(request: Request, hash: string): Promise<Response> {
    return this.#signedBody(request, hash, MAX_JSON_BYTES, async ({ bytes }) => {
      let value: unknown;
      try {
        value = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(bytes));
      } catch {
        throw new RequestError(400, "InvalidBody", "starting a pass: the body is not JSON");
      }
      const start = startSchema.safeParse(value);
      if (!start.success) {
        const issues = start.error.issues.slice(0, 5)
          .map(({ path, message }) => `${path.join(".") || "the body"}: ${message}`);
        throw new RequestError(400, "InvalidBody", `starting a pass: ${issues.join("; ")}`);
      }
      return respond(201, await this.#options.service.start(specOf(start.data)));
    });
  }

  async #remove(url: URL): Promise<Response> {
    const text = url.searchParams.get("before_round") ?? "";
    const round = Number(text);
    if (!/^[0-9]+$/.test(text) || !Number.isSafeInteger(round)) {
      throw new RequestError(
        400,
        "InvalidQuery",
        `removing passes: before_round is ${JSON.stringify(text)}, not an integer >= 0`,
      );
    }
    return respond(200, { removed: await this.#options.service.collectGarbage(round) });
  }

  async #contribute(
    request: Request,
    hash: string,
    key: string,
    peer: string,
    layer: string,
  ): Promise<Response> {
    const { service, maxBlockBytes = 256 * 1024 ** 2 } = this.#options;
    service.admit(key, peer, layer);
    return await this.#signedBody(request, hash, maxBlockBytes, async ({ bytes }) => {
      const { cid, repeated, status } = await service.submit(key, peer, layer, bytes);
      const answer: AcceptedJson = { cid, repeated, state: status.state };
      return respond(200, answer);
    });
  }

  async #block(cid: string): Promise<Response> {
    const block = await this.#options.service.block(cid);
    return new Response(block as Uint8Array<ArrayBuffer>, {
      headers: {
        "content-type": "application/octet-stream",
        "cache-control": "private, immutable",
        etag: `"${cid}"`,
      },
    });
  }
}
