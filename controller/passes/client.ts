/**
 * A peer of backward passes: signs, sends, waits, and believes no block that is not what its name says.
 *
 * @module
 */
import { decodeGarw, encodeGarw, type GarwBlock, garwCid } from "../../wire/garw.ts";
import { signedHeaders } from "./auth.ts";
import type { AcceptedJson, PassDetailJson, PassJson, StartJson } from "./json.ts";
import { acceptedSchema, errorSchema, passDetailSchema, passSchema } from "./schemas.ts";

/** Pause between two looks at a pass, in milliseconds: the first, and the longest. */
const POLL_MS = { first: 50, longest: 1_000 };

/** A request that the intake refused, or a pass that failed. */
export class IntakeError extends Error {
  /** "IntakeError". */
  override readonly name = "IntakeError";
  /** The HTTP status; 0 where the answer itself was fine. */
  readonly status: number;
  /** The intake's word for the cause, such as "PassNotFound". */
  readonly code: string;

  /** Builds the error from the answer. */
  constructor(status: number, code: string, message: string) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

/** How a {@link FederatedClient} reaches the intake. */
export interface FederatedClientOptions {
  /** The controller's HTTP address, such as "http://10.0.0.5:8080". */
  readonly url: string;
  /** The session salt, 16 bytes. */
  readonly salt: Uint8Array;
  /** This peer's name: 1 to 64 of the characters A-Z a-z 0-9 . _ ~ - */
  readonly peer: string;
  /** Longest time for one request with all its repetitions, in milliseconds; a minute unless given. */
  readonly timeoutMs?: number;
}

/** Takes part in backward passes over the controller's HTTP intake. */
export class FederatedClient {
  readonly #options: FederatedClientOptions;

  /** Makes a client; nothing is sent yet. */
  constructor(options: FederatedClientOptions) {
    this.#options = options;
  }

  /** This peer's name. */
  get peer(): string {
    return this.#options.peer;
  }

  /**
   * Starts a pass.
   *
   * @throws {IntakeError} when it is refused, for example because it exists.
   */
  async start(pass: StartJson): Promise<PassJson> {
    const body = new TextEncoder().encode(JSON.stringify(pass));
    const response = await this.#send("POST", "/v1/passes", body, "application/json");
    return passSchema.parse(await response.json());
  }

  /**
   * Reads a pass.
   *
   * @throws {IntakeError} when there is no such pass.
   */
  async read(key: string): Promise<PassDetailJson> {
    const response = await this.#send("GET", `/v1/passes/${encodeURIComponent(key)}`);
    return passDetailSchema.parse(await response.json());
  }

  /**
   * Delivers one layer. Delivering the same block again does no harm.
   *
   * @throws {IntakeError} when it is refused.
   */
  async contribute(key: string, layer: string, block: GarwBlock): Promise<AcceptedJson> {
    const path = ["v1", "passes", key, "peers", this.peer, "layers", layer];
    const url = `/${path.map(encodeURIComponent).join("/")}`;
    const response = await this.#send("PUT", url, encodeGarw(block), "application/octet-stream");
    return acceptedSchema.parse(await response.json());
  }

  /**
   * Waits until a pass is Complete.
   *
   * @param deadlineMs How long to wait, in milliseconds.
   * @throws {IntakeError} when the pass failed, is unknown, or is not Complete in time.
   */
  async wait(key: string, deadlineMs: number): Promise<PassDetailJson> {
    const end = Date.now() + deadlineMs;
    for (let pause = POLL_MS.first;; pause = Math.min(2 * pause, POLL_MS.longest)) {
      const pass = await this.read(key);
      if (pass.state.kind === "Complete") return pass;
      if (pass.state.kind === "Failed") {
        throw new IntakeError(0, "PassFailed", `waiting for pass ${key}: ${pass.state.reason}`);
      }
      if (Date.now() + pause > end) {
        throw new IntakeError(
          0,
          "Deadline",
          `waiting for pass ${key}: it is ${pass.state.kind} after ${deadlineMs} ms, with ` +
            `${pass.received} of ${pass.expected} peers`,
        );
      }
      await new Promise((resolve) => setTimeout(resolve, pause));
    }
  }

  /**
   * Fetches a block and checks it against its name.
   *
   * @throws {IntakeError} when there is no such block, or it is another one.
   */
  async block(cid: string): Promise<GarwBlock> {
    const response = await this.#send("GET", `/v1/blocks/${encodeURIComponent(cid)}`);
    const block = decodeGarw(new Uint8Array(await response.arrayBuffer()));
    const name = garwCid(block);
    if (name !== cid) {
      throw new IntakeError(0, "CorruptBlock", `fetching block ${cid}: what came is ${name}`);
    }
    return block;
  }

  /** Sends a signed request; repeats it, signed afresh, while the intake is busy. */
  async #send(
    method: string,
    path: string,
    body?: Uint8Array<ArrayBuffer>,
    type?: string,
  ): Promise<Response> {
    const { url, salt, timeoutMs = 60_000 } = this.#options;
    const signal = AbortSignal.timeout(timeoutMs);
    const end = Date.now() + timeoutMs;
    for (let pause = POLL_MS.first;; pause = Math.min(2 * pause, POLL_MS.longest)) {
      const response = await fetch(new URL(path, url), {
        method,
        signal,
        headers: {
          ...signedHeaders({ method, path, ...(body === undefined ? {} : { body }) }, salt),
          ...(type === undefined ? {} : { "content-type": type }),
        },
        ...(body === undefined ? {} : { body }),
      });
      if (response.ok) return response;
      const error = await this.#refusal(response);
      if (response.status !== 503 || Date.now() + pause > end) throw error;
      await new Promise((resolve) => setTimeout(resolve, pause));
    }
  }

  async #refusal(response: Response): Promise<IntakeError> {
    const text = await response.text();
    try {
      const { error } = errorSchema.parse(JSON.parse(text));
      return new IntakeError(response.status, error.code, error.message);
    } catch {
      return new IntakeError(response.status, "NoReason", `the answer was: ${text.slice(0, 200)}`);
    }
  }
}
