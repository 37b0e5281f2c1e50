/**
 * TLS with certificates on both ends, over any other network.
 *
 * The end that listens asks for a certificate and says in one word whether it takes it: with TLS 1.3 the
 * other end would else learn of a refusal only from a connection that ends. The word is agreed on by
 * ALPN, so that a peer behind a plain TLS tunnel does without it.
 *
 *      0  u8 1: taken, 0: refused
 *      1  u8 length n of the reason
 *      2  n bytes of ASCII
 *
 * @module
 */
import { connect, createServer, type TLSSocket } from "node:tls";
import { type Connection, TransportError } from "./connection.ts";
import { Link } from "./link.ts";
import { bareTcp, type ConnectOptions, type Listener, type Network } from "./network.ts";
import { type Address, formatAddress, TLS_ALERT } from "./tcp.ts";
import type { TlsIdentity } from "./tls_identity.ts";
import { Carrier, CarrierError, TlsConnection } from "./tls_stream.ts";

/** How long one TLS handshake may take, in milliseconds. */
const HANDSHAKE_MS = 10_000;
/** First and last pause between two attempts whose handshake was cut off, in milliseconds. */
const FIRST_PAUSE_MS = 100;
const LAST_PAUSE_MS = 2_000;
/** How long after the end of its bytes a handshake may still be thought about, in milliseconds. */
const ENDED_MS = 500;
/** How long a refused peer gets to read why, in milliseconds. */
const LAST_WORD_MS = 2_000;

const PROTOCOL = "tierfold-tls";

const UNKNOWN_CA = "its certificate was not issued by our CA";
/** What node's codes for certificates mean. */
const REASONS: Readonly<Record<string, string>> = {
  UNABLE_TO_VERIFY_LEAF_SIGNATURE: UNKNOWN_CA,
  UNABLE_TO_GET_ISSUER_CERT: UNKNOWN_CA,
  UNABLE_TO_GET_ISSUER_CERT_LOCALLY: UNKNOWN_CA,
  SELF_SIGNED_CERT_IN_CHAIN: UNKNOWN_CA,
  DEPTH_ZERO_SELF_SIGNED_CERT: UNKNOWN_CA,
  CERT_HAS_EXPIRED: "its certificate has expired",
  CERT_NOT_YET_VALID: "its certificate is not valid yet",
};

/**
 * A network whose connections are TLS: each end shows its certificate and verifies that the other's was
 * issued by the CA; the end that connects also verifies the name or address that it connected to.
 *
 * `connect` fails with a {@link TransportError} of code "refused" when one of the two does not take the
 * other: that is final, and not tried again.
 *
 * @param identity Certificate, key and CA; see {@link checkIdentity}.
 * @param below Carries the bytes; TCP when left out.
 */
export function tls(identity: TlsIdentity, below: Network = bareTcp): Network {
  return {
    listen: (address) => new TlsListener(below.listen(address), identity),
    connect: (address, what, options) => connectTls(below, identity, address, what, options),
  };
}

class TlsListener implements Listener {
  readonly #below: Listener;
  readonly #identity: TlsIdentity;
  /** Connections whose handshake is under way, with what they become. */
  readonly #greeting = new Map<Connection, Promise<void>>();
  #closed = false;

  constructor(below: Listener, identity: TlsIdentity) {
    this.#below = below;
    this.#identity = identity;
  }

  get address(): Address {
    return this.#below.address;
  }

  async accept(
    serve: (connection: Connection) => void,
    onError: (error: Error) => void,
  ): Promise<void> {
    await this.#below.accept((connection) => {
      const greeting = this.#greet(connection, serve, onError)
        .finally(() => this.#greeting.delete(connection));
      this.#greeting.set(connection, greeting);
    }, onError);
    await Promise.all(this.#greeting.values());
  }

  async #greet(
    connection: Connection,
    serve: (connection: Connection) => void,
    onError: (error: Error) => void,
  ): Promise<void> {
    try {
      const secured = await greet(connection, this.#identity);
      if (this.#closed) secured.close();
      else serve(secured);
    } catch (error) {
      if (!this.#closed) onError(error instanceof Error ? error : new Error(String(error)));
    }
  }

  close(): void {
    this.#closed = true;
    this.#below.close();
    for (const connection of this.#greeting.keys()) connection.close();
  }
}

/** The listening end's handshake. The connection is closed when it fails. */
async function greet(below: Connection, { cert, key, ca }: TlsIdentity): Promise<Connection> {
  // A server per connection, which listens nowhere: its errors are then those of this peer.
  const server = createServer({
    ...{ cert, key, ca, requestCert: true, allowHalfOpen: true },
    // The peer is to be told why it is refused, so it is heard first.
    rejectUnauthorized: false,
    ALPNProtocols: [PROTOCOL],
  });
  const refuse = (reason: string) =>
    new TransportError("refused", `TLS with ${below.peer}: ${reason}; the connection is closed`);
  const carrier = new Carrier(below);
  const socket = await secured(
    carrier,
    (done, fail) => {
      server.on("secureConnection", done);
      server.on("tlsClientError", (error) => fail(refuse(reasonOf(error))));
      server.emit("connection", carrier.stream);
    },
    () => refuse(`no handshake within ${HANDSHAKE_MS} ms`),
  ).catch(async (error) => {
    // A plain peer learns from it that we speak TLS; another one has its alert already.
    await new Link(below).closeAfter(Uint8Array.from(TLS_ALERT), LAST_WORD_MS);
    throw error instanceof CarrierError ? refuse(`in its handshake ${error.message}`) : error;
  });
  const connection = new TlsConnection(socket, below, carrier);
  const speaks = socket.alpnProtocol === PROTOCOL;
  const reason = refusalOf(socket);
  try {
    if (speaks) await within(connection, HANDSHAKE_MS, () => say(connection, reason));
    if (reason === undefined) return connection;
    if (speaks) await within(connection, LAST_WORD_MS, () => part(connection));
  } catch (error) {
    connection.close();
    if (reason === undefined) throw refuse(reasonOf(error));
  }
  connection.close();
  throw refuse(reason);
}

/** Why a peer's certificate is refused; undefined when it is good. */
function refusalOf(socket: TLSSocket): string | undefined {
  if (socket.authorized) return undefined;
  const { subject } = socket.getPeerCertificate() ?? {};
  if (subject === undefined) return "it shows no certificate";
  const code = String(socket.authorizationError);
  return REASONS[code] ?? `its certificate is refused (${code})`;
}

async function say(connection: Connection, reason: string | undefined): Promise<void> {
  const text = new TextEncoder().encode(reason ?? "").subarray(0, 255);
  const word = new Uint8Array(2 + text.length);
  word.set([reason === undefined ? 1 : 0, text.length]);
  word.set(text, 2);
  for (let done = 0; done < word.length;) done += await connection.write(word.subarray(done));
}

/** Ends our direction and reads on until the other end closes: else the last word might be lost. */
async function part(connection: Connection): Promise<void> {
  await connection.closeWrite();
  const sink = new Uint8Array(4096);
  while (await connection.read(sink) !== null);
}

async function connectTls(
  below: Network,
  identity: TlsIdentity,
  address: Address,
  what: string,
  options: ConnectOptions,
): Promise<Connection> {
  const end = Date.now() + options.deadlineMs;
  let wait = FIRST_PAUSE_MS;
  for (;;) {
    const deadlineMs = Math.max(end - Date.now(), 1);
    const connection = await below.connect(address, what, { ...options, deadlineMs });
    const limit = Math.min(Math.max(end - Date.now(), 1), HANDSHAKE_MS);
    const abort = () => connection.close();
    options.signal?.addEventListener("abort", abort);
    let failure: unknown;
    try {
      return await introduce(connection, identity, address, limit);
    } catch (error) {
      connection.close();
      failure = error;
    } finally {
      options.signal?.removeEventListener("abort", abort);
    }
    if (options.signal?.aborted) {
      throw new TransportError("ended", `connecting to ${what}: stopped on request`);
    }
    const doing = `connecting to ${what} at ${formatAddress(address)} with TLS`;
    if (!(failure instanceof CarrierError)) {
      throw new TransportError("refused", `${doing}: ${reasonOf(failure)}`, { cause: failure });
    }
    if (Date.now() + wait >= end) {
      throw new TransportError(
        "unreachable",
        `${doing}: not done within ${options.deadlineMs} ms; at last ${failure.message}`,
      );
    }
    await new Promise((resolve) => setTimeout(resolve, wait));
    wait = Math.min(2 * wait, LAST_PAUSE_MS);
  }
}

/** What a handshake failed with: a connection that ended in its middle may be made again. */
function unlessCut(error: Error & { code?: string }): Error {
  return error.code === "ECONNRESET" ? new CarrierError(error.message) : error;
}

/** The connecting end's handshake, up to the other end's word. */
async function introduce(
  below: Connection,
  { cert, key, ca }: TlsIdentity,
  { hostname }: Address,
  ms: number,
): Promise<Connection> {
  const carrier = new Carrier(below);
  const late = () => new CarrierError(`the handshake took longer than ${ms} ms`);
  const socket = await secured(
    carrier,
    (done, fail) => {
      const socket = connect({
        ...{ cert, key, ca, socket: carrier.stream, host: hostname, allowHalfOpen: true },
        // A server name is a name: addresses have no place in it.
        ...(/^[\d.]+$|:/.test(hostname) ? {} : { servername: hostname }),
        ALPNProtocols: [PROTOCOL],
      }, () => done(socket));
      socket.on("error", (error) => fail(unlessCut(error)));
      socket.on("close", () => fail(new CarrierError("the connection was closed")));
    },
    late,
    ms,
  );
  const connection = new TlsConnection(socket, below, carrier);
  if (socket.alpnProtocol !== PROTOCOL) return connection;
  return await within(connection, ms, async () => {
    const [taken, length] = await readWord(connection, 2);
    if (taken === 1) return connection;
    const reason = new TextDecoder().decode(await readWord(connection, length!));
    throw new Error(`it refuses us: ${reason}`);
  });
}

async function readWord(connection: Connection, length: number): Promise<Uint8Array> {
  const word = new Uint8Array(length);
  for (let have = 0; have < length;) {
    const count = await connection.read(word.subarray(have)).catch((error) => {
      throw unlessCut(error);
    });
    if (count === null) throw new CarrierError("the connection ended before its answer");
    have += count;
  }
  return word;
}

/** The socket once its handshake is done. */
async function secured(
  carrier: Carrier,
  begin: (done: (socket: TLSSocket) => void, fail: (error: Error) => void) => void,
  late: () => Error,
  ms = HANDSHAKE_MS,
): Promise<TLSSocket> {
  const { promise, resolve, reject } = Promise.withResolvers<TLSSocket>();
  let timer: ReturnType<typeof setTimeout> | undefined = setTimeout(() => reject(late()), ms);
  // node:tls may wait on for ever then; what came last is looked at before that.
  void carrier.ended.then(() => {
    if (timer === undefined) return;
    clearTimeout(timer);
    timer = setTimeout(() => reject(new CarrierError("the connection ended")), ENDED_MS);
  });
  carrier.stream.on("error", reject);
  try {
    begin(resolve, reject);
    return await promise;
  } finally {
    clearTimeout(timer);
    timer = undefined;
  }
}

/** Runs `action`; the connection is closed when it takes longer than `ms`. */
async function within<T>(connection: Connection, ms: number, action: () => Promise<T>): Promise<T> {
  const timer = setTimeout(() => connection.close(), ms);
  try {
    return await action();
  } finally {
    clearTimeout(timer);
  }
}

/** A failure in words: what certificates lack, or what node says. */
function reasonOf(error: unknown): string {
  const { code = "", message } = error as Error & { code?: string };
  if (code === "ERR_TLS_CERT_ALTNAME_INVALID") {
    return `its certificate is for another name (${message.trim()})`;
  }
  if (code.endsWith("_PROTOCOL_VERSION")) return `it speaks no TLS that we do (${message})`;
  return REASONS[code] ?? message;
}
