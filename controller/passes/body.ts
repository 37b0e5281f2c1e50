/**
 * Request bodies, read as they come: bounded one by one and all together, hashed on the way, within a
 * deadline.
 *
 * @module
 */
import { createHash } from "node:crypto";
import { LimitedBytesTransformStream } from "@std/streams";

/** Why a body was not taken. */
export type BodyErrorCode = "BodyTooLarge" | "BodyTooSlow" | "BodyBroken" | "Busy";

/** A body that was not taken. */
export class BodyError extends Error {
  /** "BodyError". */
  override readonly name = "BodyError";
  /** The cause. */
  readonly code: BodyErrorCode;

  /** Builds the error from its cause and from what was expected and found. */
  constructor(code: BodyErrorCode, message: string, options?: ErrorOptions) {
    super(message, options);
    this.code = code;
  }
}

/** Bytes that all bodies under way may hold together. */
export class BodyBudget {
  #left: number;

  /** Takes the number of bytes. */
  constructor(bytes: number) {
    this.#left = bytes;
  }

  /** Takes a part of the budget; false when it is not there. */
  take(bytes: number): boolean {
    if (bytes > this.#left) return false;
    this.#left -= bytes;
    return true;
  }

  /** Gives a part back. */
  give(bytes: number): void {
    this.#left += bytes;
  }
}

/** A body that was read. */
export interface Body {
  /** All of it. */
  readonly bytes: Uint8Array<ArrayBuffer>;
  /** SHA-256, lower-case hex. */
  readonly sha256: string;
}

/** How a body is read. */
export interface BodyLimits {
  /** Most bytes of it. */
  readonly maxBytes: number;
  /** Longest time for it, in milliseconds. */
  readonly deadlineMs: number;
  /** What it shares with the others. */
  readonly budget: BodyBudget;
}

/**
 * Reads a request's body and hands it to `use`. Memory grows with the bytes that really come, whatever
 * the request announces.
 *
 * @throws {BodyError} BodyTooLarge, BodyTooSlow, BodyBroken, Busy; and what `use` throws.
 */
export async function withBody<T>(
  request: Request,
  limits: BodyLimits,
  use: (body: Body) => Promise<T>,
): Promise<T> {
  const { maxBytes, budget } = limits;
  const announced = Number(request.headers.get("content-length") ?? 0);
  if (announced > maxBytes) {
    await request.body?.cancel();
    throw new BodyError(
      "BodyTooLarge",
      `a body of ${announced} bytes: at most ${maxBytes} are allowed`,
    );
  }
  let taken = 0;
  try {
    const chunks: Uint8Array[] = [];
    const hash = createHash("sha256");
    for await (const chunk of chunksOf(request, limits)) {
      // Once as it comes, once in one piece.
      if (!budget.take(2 * chunk.length)) {
        throw new BodyError("Busy", "too many bodies are being read; try again in a second");
      }
      taken += 2 * chunk.length;
      hash.update(chunk);
      chunks.push(chunk);
    }
    const bytes = new Uint8Array(taken / 2);
    let at = 0;
    for (const chunk of chunks.splice(0)) {
      bytes.set(chunk, at);
      at += chunk.length;
    }
    return await use({ bytes, sha256: hash.digest("hex") });
  } finally {
    budget.give(taken);
  }
}

async function* chunksOf(request: Request, limits: BodyLimits): AsyncGenerator<Uint8Array> {
  const { maxBytes, deadlineMs } = limits;
  if (request.body === null) return;
  const controller = new AbortController();
  const timer = setTimeout(() => {
    controller.abort(
      new BodyError("BodyTooSlow", `a body that had not come whole after ${deadlineMs} ms`),
    );
  }, deadlineMs);
  try {
    const limited: TransformStream<Uint8Array, Uint8Array> = new LimitedBytesTransformStream(
      maxBytes,
      { error: true },
    );
    yield* request.body.pipeThrough(limited, { signal: controller.signal });
  } catch (cause) {
    if (cause instanceof BodyError) throw cause;
    if (cause instanceof RangeError) {
      throw new BodyError("BodyTooLarge", `a body of more than the ${maxBytes} bytes allowed`, {
        cause,
      });
    }
    throw new BodyError("BodyBroken", "a body that ended in the middle", { cause });
  } finally {
    clearTimeout(timer);
  }
}
