import { assert, assertEquals, assertThrows } from "@std/assert";
import { type Connection, TransportError } from "../../transport/connection.ts";
import { Link } from "../../transport/link.ts";
import { bareTcp, type Listener, type Network, tcp } from "../../transport/network.ts";
import { Pipe, type PipeOptions } from "../../transport/pipe.ts";
import { type Address, formatAddress } from "../../transport/tcp.ts";
import { checkIdentity } from "../../transport/tls_identity.ts";
import { tls } from "../../transport/tls.ts";
import { failure, PATIENCE_MS, soon } from "../cluster/waiting.ts";
import { type Certificates, tlsTest } from "./certificates.ts";

const LOOPBACK: Address = { hostname: "127.0.0.1", port: 0 };

/** What listens, with what it accepted and what it refused. */
class Server implements AsyncDisposable {
  readonly #listener: Listener;
  readonly #accepting: Promise<void>;
  readonly #links: Link[] = [];
  readonly #all: Link[] = [];
  #changed = Promise.withResolvers<void>();
  readonly refused: string[] = [];

  constructor(network: Network, address = LOOPBACK) {
    this.#listener = network.listen(address);
    this.#accepting = this.#listener.accept((connection) => {
      const link = new Link(connection);
      this.#links.push(link);
      this.#all.push(link);
      this.#changed.resolve();
    }, (error) => {
      this.refused.push(error.message);
      this.#changed.resolve();
    });
  }

  get address(): Address {
    return this.#listener.address;
  }

  async next(): Promise<Link> {
    await soon("a connection", this.#until(() => this.#links.length > 0));
    return this.#links.shift()!;
  }

  /** Waits for a refusal. */
  async refusal(): Promise<string> {
    await soon("a refusal", this.#until(() => this.refused.length > 0));
    return this.refused.shift()!;
  }

  async #until(there: () => boolean): Promise<void> {
    while (!there()) {
      await this.#changed.promise;
      this.#changed = Promise.withResolvers();
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#listener.close();
    for (const link of this.#all) link.close();
    await soon("accepting ends", this.#accepting);
  }
}

const open = (network: Network, address: Address, deadlineMs = PATIENCE_MS) =>
  network.connect(address, "the controller", { deadlineMs });

const server = (files: Certificates, name = "controller") => tls(files.identity(name));
const client = (files: Certificates, name = "relay", ca = "ca") => tls(files.identity(name, ca));

/** Both ends of one connection. */
async function pair(files: Certificates): Promise<{ server: Server; here: Link; there: Link }> {
  const accepting = new Server(server(files));
  const here = new Link(await open(client(files), accepting.address));
  return { server: accepting, here, there: await accepting.next() };
}

const numbered = (length: number) =>
  Uint8Array.from({ length }, (_, i) => (i * 7 + (i >> 9)) & 255);

tlsTest("tls: large and small messages both ways, a clean end", async (files) => {
  const { server, here, there } = await pair(files);
  await using _ = server;
  assertEquals(here.peer, formatAddress(server.address));
  assert(/^127\.0\.0\.1:\d+$/.test(there.peer), there.peer);
  for (const length of [1, 70_000, 3_000_000]) {
    const given = numbered(length);
    const got = [new Uint8Array(length), new Uint8Array(length)];
    await soon(
      `${length} bytes`,
      Promise.all([
        here.writeFully(given, "it"),
        there.writeFully(given, "it"),
        here.readFully(got[0]!, "it"),
        there.readFully(got[1]!, "it"),
      ]),
    );
    assertEquals(got.map((bytes) => bytes.findIndex((byte, i) => byte !== given[i])), [-1, -1]);
  }
  here.close();
  assertEquals(await soon("the end", there.readFully(new Uint8Array(1), "more")), false);
});

tlsTest("tls: bytes in shared memory go out as they lie", async (files) => {
  const { server, here, there } = await pair(files);
  await using _ = server;
  const { buffer } = new WebAssembly.Memory({ initial: 8, maximum: 8, shared: true });
  const given = new Uint8Array(buffer);
  given.set(numbered(given.length));
  const got = new Uint8Array(
    new WebAssembly.Memory({ initial: 8, maximum: 8, shared: true }).buffer,
  );
  await Promise.all([here.writeFully(given, "it"), there.readFully(got, "it")]);
  assertEquals(got.findIndex((byte, i) => byte !== given[i]), -1);
  here.close();
});

tlsTest("tls: one direction ends while the other goes on", async (files) => {
  const accepting = new Server(server(files));
  await using _ = accepting;
  const here = await open(client(files), accepting.address);
  const there = await accepting.next();
  await here.closeWrite();
  assertEquals(await soon("the end", there.readFully(new Uint8Array(1), "it")), false);
  const got = new Uint8Array(200_000);
  const reading = new Link(here).readFully(got, "it");
  await soon("the other direction", there.writeFully(numbered(got.length), "it"));
  assertEquals(await soon("the bytes", reading), true);
  assertEquals(got, numbered(got.length));
  here.close();
});

tlsTest(
  "tls: a last word arrives though the other end is in the middle of writing",
  async (files) => {
    const { server, here, there } = await pair(files);
    await using _ = server;
    const writing = here.writeFully(new Uint8Array(30_000_000), "a frame").catch((error) => error);
    await there.readFully(new Uint8Array(10_000), "a frame");
    const parting = there.closeAfter(new TextEncoder().encode("goodbye"), PATIENCE_MS);
    const word = new Uint8Array(7);
    assertEquals(await soon("the word", here.readFully(word, "a word")), true);
    assertEquals(new TextDecoder().decode(word), "goodbye");
    here.close();
    await soon("all ends", Promise.all([writing, parting]));
  },
);

tlsTest(
  "tls: who is not read from waits, with little in memory, and ends at once",
  async (files) => {
    const { server, here } = await pair(files);
    await using _ = server;
    const given = new Uint8Array(1024 ** 2);
    let written = 0;
    let last = Date.now();
    const writing = (async () => {
      for (;;) {
        await here.writeFully(given, "it");
        written += given.length;
        last = Date.now();
      }
    })().catch((error) => error);
    // Loopback sockets of this kernel hold a few MiB; what a writer without limits would get through is
    // hundreds.
    while (Date.now() - last < 500) await new Promise((resolve) => setTimeout(resolve, 50));
    assert(written < 64 * 1024 ** 2, `${written} bytes were taken`);
    here.close(new TransportError("ended", "enough"));
    const error = await soon("the write ends", writing);
    assertEquals((error as Error).message, "enough");
  },
);

tlsTest("tls: a read and a write under way end when this end closes", async (files) => {
  const { server, here, there } = await pair(files);
  await using _ = server;
  const reading = failure("reading", here.readSome(new Uint8Array(1), "it"), "enough");
  here.close(new TransportError("ended", "enough"));
  await reading;
  assertEquals(await soon("the end", there.readFully(new Uint8Array(1), "it")), false);
});

/** The refusal that the connecting end sees, which must come at once. */
async function refusal(network: Network, address: Address, ...texts: string[]): Promise<void> {
  const started = Date.now();
  const error = await failure("connecting", open(network, address, 120_000), ...texts);
  assertEquals((error as TransportError).code, "refused", error.message);
  assert(error.message.startsWith(`connecting to the controller at ${formatAddress(address)}`));
  assert(Date.now() - started < 60_000, "it was tried again");
}

tlsTest(
  "tls: whoever has no good certificate is refused by name, and not tried again",
  async (files) => {
    await using good = new Server(server(files));
    const strange = "certificate was not issued by our CA";
    await refusal(client(files, "stranger"), good.address, "refuses us", strange);
    assert((await good.refusal()).includes(strange));
    await refusal(client(files, "expired"), good.address, "refuses us", "has expired");
    assert((await good.refusal()).includes("has expired"));
    // A client that shows nothing at all.
    const { ca } = files.identity("relay");
    const none = tls({ ca } as ReturnType<Certificates["identity"]>);
    await refusal(none, good.address, "refuses us", "it shows no certificate");
    assert((await good.refusal()).includes("it shows no certificate"));
    // The controller goes on.
    const link = new Link(await open(client(files), good.address));
    await link.writeFully(new Uint8Array(1), "it");
    assertEquals(await (await good.next()).readFully(new Uint8Array(1), "it"), true);
    link.close();
  },
);

tlsTest("tls: a server with another CA, name or time is refused by its client", async (files) => {
  for (
    const [name, ca, text] of [
      ["controller", "other-ca", "was not issued by our CA"],
      ["elsewhere", "ca", "its certificate is for another name"],
      ["expired", "ca", "has expired"],
    ] as const
  ) {
    await using bad = new Server(server(files, name));
    await refusal(client(files, "relay", ca), bad.address, text);
  }
});

tlsTest("tls: somebody else's certificate without its key is refused", async (files) => {
  await using good = new Server(server(files));
  const { cert, key, ca } = files.identity("relay");
  const der = Uint8Array.from(atob(key.replace(/-----[^-]*-----|\s/g, "")), (c) => c.charCodeAt(0));
  // PKCS #8 of a P-256 key holds 04 20 and its 32 bytes; the public half behind them stays.
  const at = der.findIndex((byte, i) => byte === 4 && der[i + 1] === 32);
  crypto.getRandomValues(der.subarray(at + 3, at + 34));
  const pem = btoa(String.fromCharCode(...der)).replace(/.{64}/g, "$&\n");
  const keyFile = `${files.folder}/forged.key`;
  await Deno.writeTextFile(
    keyFile,
    `-----BEGIN PRIVATE KEY-----\n${pem}\n-----END PRIVATE KEY-----\n`,
  );
  await Deno.writeTextFile(`${files.folder}/taken.crt`, cert);
  await Deno.writeTextFile(`${files.folder}/taken-ca.crt`, ca);
  // openssl sends what it is told to; our own client checks the pair.
  const child = new Deno.Command("openssl", {
    args: [
      ...["s_client", "-connect", formatAddress(good.address), "-key", keyFile],
      ...["-cert", `${files.folder}/taken.crt`, "-CAfile", `${files.folder}/taken-ca.crt`],
    ],
    stdin: "null",
    stdout: "null",
    stderr: "null",
  }).spawn();
  await good.refusal();
  await child.status;
  assertEquals(good.refused, []);
});

tlsTest("tls: plain and TLS do not talk, and both say why", async (files) => {
  await using secure = new Server(server(files));
  const plain = new Link(await open(tcp, secure.address));
  await plain.writeFully(new TextEncoder().encode("this is not TLS"), "it");
  assert((await secure.refusal()).startsWith("TLS with 127.0.0.1:"));
  await failure(
    "reading",
    plain.readFully(new Uint8Array(64), "an answer"),
    "the other end speaks TLS, this one does not",
  );
  plain.close();
  await using open2 = new Server(tcp);
  const speaking = refusal(client(files), open2.address, "it speaks no TLS that we do");
  const link = await open2.next();
  await failure(
    "reading",
    link.readFully(new Uint8Array(16), "a handshake"),
    "the other end speaks TLS, this one does not",
  );
  link.close();
  await speaking;
});

tlsTest("tls: connecting goes on until the port opens, or the time is over", async (files) => {
  const nowhere = tcp.listen(LOOPBACK);
  const { address } = nowhere;
  nowhere.close();
  const error = await failure(
    "connecting",
    open(client(files), address, 200),
    `connecting to the controller at ${formatAddress(address)}`,
  );
  assertEquals((error as TransportError).code, "unreachable");
  const connecting = open(client(files), address);
  await new Promise((resolve) => setTimeout(resolve, 120));
  await using late = new Server(server(files), address);
  const link = new Link(await soon("the connection", connecting));
  await late.next();
  link.close();
});

tlsTest("tls: connections cut in the middle of a handshake are tried again", async (files) => {
  let cuts = 3;
  const broken: Network = {
    ...bareTcp,
    connect: async (...args) => {
      const connection = await bareTcp.connect(...args);
      if (cuts-- > 0) {
        const { write } = connection;
        let writes = 0;
        connection.write = (bytes) => {
          if (++writes > 1) connection.close();
          return write.call(connection, bytes);
        };
      }
      return connection;
    },
  };
  await using accepting = new Server(server(files));
  const link = new Link(await open(tls(files.identity("relay"), broken), accepting.address));
  assert(cuts < 0);
  link.close();
});

tlsTest(
  "tls: an abort ends connecting at once, in the middle of a handshake too",
  async (files) => {
    await using silent = new Server(tcp);
    const stop = new AbortController();
    const connecting = failure(
      "connecting",
      client(files).connect(silent.address, "the controller", {
        deadlineMs: 120_000,
        signal: stop.signal,
      }),
      "connecting to the controller: stopped on request",
    );
    await silent.next();
    stop.abort();
    assertEquals(((await connecting) as TransportError).code, "ended");
  },
);

tlsTest("tls: closing the listener ends handshakes under way", async (files) => {
  const accepting = new Server(server(files));
  const plain = await open(tcp, accepting.address);
  await plain.write(Uint8Array.of(0x16, 3, 1));
  await accepting[Symbol.asyncDispose]();
  plain.close();
});

/** A network in memory, each connection a pipe. */
function pipes(options: PipeOptions): Network & { pipe: Pipe | undefined } {
  let serve: (connection: Connection) => void = () => {};
  const network = {
    pipe: undefined as Pipe | undefined,
    listen(address: Address): Listener {
      const closed = Promise.withResolvers<void>();
      return {
        address,
        accept: (handler) => {
          serve = handler;
          return closed.promise;
        },
        close: () => closed.resolve(),
      };
    },
    connect() {
      network.pipe = new Pipe(options);
      serve(network.pipe.ends[1]);
      return Promise.resolve(network.pipe.ends[0]);
    },
  };
  return network;
}

tlsTest("tls: partial reads and writes, and a cut anywhere, over a bad pipe", async (files) => {
  const address = { hostname: "localhost", port: 1 };
  const given = numbered(40_000);
  for (let seed = 1; seed <= 12; seed++) {
    // The handshake takes about 3 KB; a cut comes in it, in the data, or not at all.
    const dieAfter = seed % 3 === 0 ? {} : { dieAfter: seed * 3_000 };
    const network = pipes({ seed, budget: 700 * seed, mostBytes: 40 * seed ** 2, ...dieAfter });
    await using accepting = new Server(tls(files.identity("controller"), network));
    const connecting = open(tls(files.identity("relay"), network), address, 400);
    const outcome = await soon(
      "it",
      connecting.then((c) => new Link(c), (error) => error as Error),
    );
    if (outcome instanceof Error) {
      assertEquals((outcome as TransportError).code, "unreachable", outcome.message);
      assert(seed % 3 !== 0, outcome.message);
      continue;
    }
    const there = await accepting.next();
    const got = new Uint8Array(given.length);
    const ends = await soon(
      "both ends",
      Promise.allSettled([
        outcome.writeFully(given, "it").catch((error) => {
          outcome.close();
          throw error;
        }),
        there.readFully(got, "it"),
      ]),
    );
    if (seed % 3 === 0) assertEquals([ends[1].status, got], ["fulfilled", given]);
    else assert(ends.some(({ status }) => status === "rejected") || got[39_999] === given[39_999]);
    outcome.close();
  }
});

tlsTest("tls: an identity that cannot work is refused before anybody connects", async (files) => {
  await Promise.resolve();
  const now = new Date();
  const good = files.identity("relay");
  checkIdentity(good, now);
  const other = files.identity("controller");
  for (
    const [identity, text] of [
      [{ ...good, key: other.key }, "the key does not belong to the certificate"],
      [{ ...good, key: "nothing" }, "the key is not a private key in PEM form"],
      [{ ...good, cert: good.key }, "the certificate is not a certificate in PEM form"],
      [{ ...good, ca: "" }, "the CA is not a certificate in PEM form"],
      [files.identity("stranger"), "the certificate was not issued by the CA"],
      [files.identity("expired"), "the certificate has expired"],
      [files.identity("ca"), "the certificate is that of a CA"],
    ] as const
  ) {
    const error = assertThrows(() => checkIdentity(identity, now), RangeError);
    assert((error as Error).message.includes(text), (error as Error).message);
  }
  const early = assertThrows(() => checkIdentity(good, new Date(0)), RangeError) as Error;
  assert(early.message.includes("is not valid yet"), early.message);
});
