/**
 * The HTTP port of a process: off unless asked for, one server for everything that speaks HTTP.
 *
 * @module
 */
import { getLogger } from "@logtape/logtape";
import { type Address, formatAddress } from "../transport/tcp.ts";
import { TransportError } from "../transport/connection.ts";

const log = getLogger(["tierfold", "http"]);

/** How long requests under way may take once the server is closing, in milliseconds. */
const CLOSE_MS = 2_000;

/** Answers some requests; undefined leaves the request to the next handler. */
export type HttpHandler = (
  request: Request,
) => Response | undefined | Promise<Response | undefined>;

/** A running HTTP server. */
export interface HttpServer {
  /** Where it listens, with the real port. */
  readonly address: Address;
  /** Finishes the requests under way, within 2 s, and stops. */
  close(): Promise<void>;
}

function failure(status: number, code: string, message: string): Response {
  return new Response(`${JSON.stringify({ error: { code, message } })}\n`, {
    status,
    headers: { "content-type": "application/json" },
  });
}

/**
 * Serves HTTP on an address; handlers are asked one after another.
 *
 * @throws {TransportError} with code "address" when the address cannot be had.
 */
export function serveHttp(address: Address, handlers: readonly HttpHandler[]): HttpServer {
  const stop = new AbortController();
  const answer = async (request: Request): Promise<Response> => {
    for (const handler of handlers) {
      const response = await handler(request);
      if (response !== undefined) return response;
    }
    return failure(404, "NoSuchPath", `there is nothing at ${new URL(request.url).pathname}`);
  };
  const onError = (error: unknown): Response => {
    log.error("answering a request: {error}", { error });
    return failure(500, "Internal", "answering the request failed here; the log says why");
  };
  let server: Deno.HttpServer<Deno.NetAddr>;
  try {
    server = Deno.serve({ ...address, signal: stop.signal, onError, onListen: () => {} }, answer);
  } catch (cause) {
    const text = cause instanceof Error ? cause.message : String(cause);
    throw new TransportError(
      "address",
      `serving HTTP on ${
        formatAddress(address)
      }: ${text}; choose another address or port, or stop ` +
        "the process that holds it",
      { cause },
    );
  }
  return {
    address: { hostname: server.addr.hostname, port: server.addr.port },
    async close() {
      const timer = setTimeout(() => stop.abort(), CLOSE_MS);
      await server.shutdown();
      clearTimeout(timer);
      await server.finished;
    },
  };
}
