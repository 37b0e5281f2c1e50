/**
 * Takes the losses that ranks report: POST /losses.
 *
 * The wire of the rounds has no room for them: a frame's headers are fixed, and a Control round would
 * make everybody wait. So a rank that wants its loss seen sends it to the controller's HTTP port, signed
 * with the session salt like every request that changes something there, whenever it likes.
 *
 * @module
 */
import { getLogger } from "@logtape/logtape";
import { z } from "zod";
import { AuthError, RequestVerifier } from "../passes/auth.ts";
import { BodyBudget, BodyError, withBody } from "../passes/body.ts";
import type { LossBoard } from "./loss_board.ts";

const log = getLogger(["tierfold", "http"]);

const PATH = "/losses";
const LIMITS = { maxBytes: 1024, deadlineMs: 10_000 };
/** Bytes that all bodies under way may take together. */
const BUDGET_BYTES = 256 * 1024;

const report = z.strictObject({
  rank: z.int().nonnegative(),
  step: z.int().nonnegative(),
  loss: z.number(),
});

/** A request that was not taken. */
class Refusal extends Error {
  constructor(readonly status: number, readonly code: string, message: string) {
    super(message);
  }
}

/** Answers POST /losses with 204. */
export class LossIntake {
  readonly #board: LossBoard;
  readonly #verifier: RequestVerifier;
  readonly #budget = new BodyBudget(BUDGET_BYTES);

  /** @param salt The session salt, 16 bytes. */
  constructor(board: LossBoard, salt: Uint8Array) {
    this.#board = board;
    this.#verifier = new RequestVerifier(salt);
  }

  /** Answers a request; undefined when it is for another path. Never rejects for what a peer sends. */
  async handle(request: Request): Promise<Response | undefined> {
    const { pathname, search } = new URL(request.url);
    if (pathname !== PATH) return undefined;
    try {
      if (request.method !== "POST") {
        throw new Refusal(405, "MethodNotAllowed", `${PATH} takes POST, not ${request.method}`);
      }
      const now = Date.now();
      const hash = this.#verifier.verify("POST", pathname + search, request.headers, now);
      await withBody(request, { ...LIMITS, budget: this.#budget }, ({ bytes, sha256 }) => {
        if (sha256 !== hash) {
          throw new AuthError("BodyHashMismatch", `POST ${PATH}: the body is not the one signed`);
        }
        this.#take(bytes, now);
        return Promise.resolve();
      });
      return new Response(null, { status: 204 });
    } catch (error) {
      return refusal(error);
    } finally {
      if (request.body !== null && !request.bodyUsed) await request.body.cancel().catch(() => {});
    }
  }

  #take(bytes: Uint8Array, atMs: number): void {
    let json: unknown;
    try {
      json = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(bytes));
    } catch {
      throw new Refusal(400, "InvalidBody", `POST ${PATH}: the body is not JSON`);
    }
    const parsed = report.safeParse(json);
    if (!parsed.success) {
      throw new Refusal(
        400,
        "InvalidBody",
        `POST ${PATH}: expected {"rank": n, "step": n, "loss": x}; ${
          z.prettifyError(parsed.error)
        }`,
      );
    }
    try {
      this.#board.report({ ...parsed.data, atMs });
    } catch (error) {
      if (!(error instanceof RangeError)) throw error;
      throw new Refusal(422, "InvalidLoss", `POST ${PATH}: ${error.message}`);
    }
  }
}

function refusal(error: unknown): Response {
  let status: number;
  if (error instanceof Refusal) status = error.status;
  else if (error instanceof AuthError) status = error.code === "TooManyRequests" ? 503 : 401;
  else if (error instanceof BodyError) {
    status = { BodyTooLarge: 413, BodyTooSlow: 408, BodyBroken: 400, Busy: 503 }[error.code];
  } else throw error;
  log.info("refused POST {path}: {error}", { path: PATH, error });
  const { code, message } = error;
  return Response.json({ error: { code, message } }, { status });
}
