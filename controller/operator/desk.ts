/**
 * What an operator may do over HTTP, with the operator's token: end the session, declare a rank dead.
 *
 *     GET  /operator                              whether there is a token at all; needs none
 *     POST /operator/check                        whether this is the token
 *     POST /operator/end                          ends the session
 *     POST /operator/ranks/{rank}/declare-dead    goes on without this rank
 *
 * The token travels as `Authorization: Bearer TOKEN`, which no form and no page of another origin can
 * send; requests that a browser made for such a page are refused besides.
 *
 * @module
 */
import { createHash } from "node:crypto";
import { timingSafeEqual } from "@std/crypto/timing-safe-equal";
import { getLogger } from "@logtape/logtape";

const log = getLogger(["tierfold", "operator"]);

/** What a session does when its operator says so. */
export interface OperatorActions {
  /** Ends the session: its relays are told that the operator did. */
  end(): void;
  /**
   * Tells a rank's relay to go on without it.
   *
   * @returns Whether a relay carries that rank.
   */
  declareDead(rank: number): boolean;
}

function respond(status: number, body: unknown, headers: Record<string, string> = {}): Response {
  return new Response(`${JSON.stringify(body)}\n`, {
    status,
    headers: { "content-type": "application/json", "cache-control": "no-store", ...headers },
  });
}

function refuse(
  status: number,
  code: string,
  message: string,
  headers: Record<string, string> = {},
): Response {
  return respond(status, { error: { code, message } }, headers);
}

/** Whether a browser made the request for a page that is not this server's. */
function isForeign({ headers, url }: Request): boolean {
  const site = headers.get("sec-fetch-site");
  if (site !== null && site !== "same-origin" && site !== "none") return true;
  const origin = headers.get("origin");
  if (origin === null) return false;
  // Behind a proxy the scheme here is not that of the page.
  const host = headers.get("host") ?? new URL(url).host;
  return !URL.canParse(origin) || new URL(origin).host !== host;
}

/** Hashes are of one length, whatever was sent, and tell nothing of where two tokens differ. */
function hash(token: string): Uint8Array {
  return createHash("sha256").update(token).digest();
}

/** Answers the requests below /operator. */
export class OperatorDesk {
  readonly #token: Uint8Array | undefined;
  readonly #actions: OperatorActions;

  /**
   * @param token The operator's token; undefined: nobody may do anything.
   * @param actions What is done.
   */
  constructor(token: string | undefined, actions: OperatorActions) {
    this.#token = token === undefined ? undefined : hash(token);
    this.#actions = actions;
  }

  /** Answers a request; undefined when it is for somebody else. */
  handle(request: Request): Response | undefined {
    const { pathname } = new URL(request.url);
    if (pathname !== "/operator" && !pathname.startsWith("/operator/")) return undefined;
    if (pathname === "/operator") {
      return request.method === "GET"
        ? respond(200, { enabled: this.#token !== undefined })
        : refuse(405, "Method", "only GET is answered here", { allow: "GET" });
    }
    if (request.method !== "POST") {
      return refuse(405, "Method", "only POST is answered here", { allow: "POST" });
    }
    return this.#stopped(request) ?? this.#act(pathname);
  }

  /** Why a request may not act; undefined when it may. */
  #stopped(request: Request): Response | undefined {
    if (isForeign(request)) {
      return refuse(403, "ForeignOrigin", "the request was made for a page of another origin");
    }
    if (this.#token === undefined) {
      return refuse(
        403,
        "ReadOnly",
        "this controller has no operator token: start it with TIERFOLD_OPERATOR_TOKEN or " +
          "--operator-token-file",
      );
    }
    const [, given] = /^Bearer +(\S+)$/i.exec(request.headers.get("authorization") ?? "") ?? [];
    if (given !== undefined && timingSafeEqual(hash(given), this.#token)) return undefined;
    log.warn("an operator's request was refused: {why}", {
      why: given === undefined ? "it has no token" : "its token is wrong",
    });
    return refuse(
      401,
      given === undefined ? "NoToken" : "WrongToken",
      given === undefined
        ? "the operator's token is missing: send Authorization: Bearer TOKEN"
        : "this is not the operator's token",
      { "www-authenticate": 'Bearer realm="tierfold operator"' },
    );
  }

  #act(pathname: string): Response {
    if (pathname === "/operator/check") return new Response(null, { status: 204 });
    if (pathname === "/operator/end") {
      log.warn("the operator ends the session");
      this.#actions.end();
      return respond(202, { ending: true });
    }
    const [, digits] = /^\/operator\/ranks\/(\d{1,10})\/declare-dead$/.exec(pathname) ?? [];
    if (digits === undefined) return refuse(404, "NoSuchPath", `there is nothing at ${pathname}`);
    const rank = Number(digits);
    if (!this.#actions.declareDead(rank)) {
      return refuse(404, "NoSuchRank", `no relay carries rank ${rank} now`);
    }
    log.warn("the operator declared rank {rank} dead", { rank });
    return respond(202, { declaredDead: rank });
  }
}
