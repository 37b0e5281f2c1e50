import { assert, assertEquals } from "@std/assert";
import { TransportError } from "../../transport/connection.ts";
import { Link } from "../../transport/link.ts";
import { type Address, connectTcp, formatAddress, TcpListener } from "../../transport/tcp.ts";
import { failure, soon } from "../cluster/waiting.ts";

const LOOPBACK: Address = { hostname: "127.0.0.1", port: 0 };

/** Accepts connections as links, one after another. */
function acceptor(address: Address = LOOPBACK) {
  const listener = TcpListener.listen(address);
  const links: Link[] = [];
  const waiting: ((link: Link) => void)[] = [];
  const errors: Error[] = [];
  const accepting = listener.accept((connection) => {
    const link = new Link(connection);
    const next = waiting.shift();
    if (next === undefined) links.push(link);
    else next(link);
  }, (error) => errors.push(error));
  return {
    address: listener.address,
    errors,
    next: () =>
      soon(
        "a connection",
        new Promise<Link>((resolve) => {
          const link = links.shift();
          if (link === undefined) waiting.push(resolve);
          else resolve(link);
        }),
      ),
    async close() {
      listener.close();
      listener.close();
      await soon("accepting ends", accepting);
    },
  };
}

/** An address at which nobody listens. */
function nowhere(): Address {
  const listener = TcpListener.listen(LOOPBACK);
  const { address } = listener;
  listener.close();
  return address;
}

Deno.test("tcp: addresses as people write them", () => {
  assertEquals(formatAddress({ hostname: "127.0.0.1", port: 7 }), "127.0.0.1:7");
  assertEquals(formatAddress({ hostname: "::1", port: 7 }), "[::1]:7");
});

Deno.test("tcp: large and small messages both ways, a clean end", async () => {
  const server = acceptor();
  const here = new Link(await connectTcp(server.address, "a server", { deadlineMs: 5_000 }));
  const there = await server.next();
  assertEquals(here.peer, formatAddress(server.address));
  assert(/^127\.0\.0\.1:\d+$/.test(there.peer), there.peer);
  for (const length of [1, 70_000, 3_000_000]) {
    const given = Uint8Array.from({ length }, (_, i) => i * 7);
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
  assertEquals(await there.readFully(new Uint8Array(1), "more"), false);
  there.close();
  await server.close();
});

Deno.test("tcp: connecting goes on until the port opens", async () => {
  const address = nowhere();
  const connecting = connectTcp(address, "a late server", { deadlineMs: 10_000 });
  await new Promise((resolve) => setTimeout(resolve, 120));
  const server = acceptor(address);
  const here = new Link(await soon("the connection", connecting));
  const there = await server.next();
  await here.writeFully(new Uint8Array(1), "it");
  assertEquals(await there.readFully(new Uint8Array(1), "it"), true);
  here.close();
  there.close();
  await server.close();
});

Deno.test("tcp: connecting in vain names address, attempts, time and cause", async () => {
  const address = nowhere();
  const error = await failure(
    "connecting",
    connectTcp(address, "the controller", { deadlineMs: 200 }),
    new RegExp(
      `^connecting to the controller at ${
        formatAddress(address)
      }: \\d attempts in 200 ms failed, ` +
        "the last one with: .*refused",
    ),
  );
  assert(error instanceof TransportError && error.cause instanceof Error);
  assertEquals((error as TransportError).code, "unreachable");
  await failure(
    "a name that nobody has",
    connectTcp({ hostname: "nobody.invalid", port: 1 }, "the relay of rank 0", { deadlineMs: 100 }),
    "connecting to the relay of rank 0 at nobody.invalid:1",
  );
});

Deno.test("tcp: an abort ends connecting at once, before or during it", async () => {
  const address = nowhere();
  const before = AbortSignal.abort(new Error("stop"));
  const during = new AbortController();
  const attempts = [
    connectTcp(address, "a server", { deadlineMs: 60_000, signal: before }),
    connectTcp(address, "a server", { deadlineMs: 60_000, signal: during.signal }),
  ];
  const outcomes = attempts.map((attempt) =>
    failure("connecting", attempt, "connecting to a server: stopped on request")
  );
  setTimeout(() => during.abort(new Error("stop")), 90);
  for (const error of await Promise.all(outcomes)) {
    assertEquals((error as TransportError).code, "ended");
  }
});

Deno.test({
  name: "tcp: what this process may not do is not tried again",
  permissions: { net: false },
  async fn() {
    const error = await failure(
      "connecting",
      connectTcp({ hostname: "127.0.0.1", port: 9 }, "a server", { deadlineMs: 60_000 }),
    );
    assert(error instanceof Deno.errors.NotCapable, `${error}`);
  },
});

Deno.test("tcp: an address in use is named", async () => {
  const server = acceptor();
  let error: unknown;
  try {
    TcpListener.listen(server.address).close();
  } catch (thrown) {
    error = thrown;
  }
  assert(error instanceof TransportError, `${error}`);
  const { code, message } = error as TransportError;
  assertEquals(code, "address");
  assert(message.startsWith(`listening on ${formatAddress(server.address)}: `), message);
  assert(message.includes("choose another address or port"), message);
  await server.close();
});

Deno.test("tcp: accepting goes on after an error", async () => {
  const listener = TcpListener.listen(LOOPBACK);
  const errors: string[] = [];
  const second = Promise.withResolvers<Link>();
  let served = 0;
  const accepting = listener.accept((connection) => {
    if (served++ > 0) return second.resolve(new Link(connection));
    connection.close();
    throw new Error("no room");
  }, (error) => errors.push(error.message));
  for (let i = 0; i < 2; i++) {
    (await connectTcp(listener.address, "it", { deadlineMs: 5_000 })).close();
  }
  (await soon("the second connection", second.promise)).close();
  assertEquals(errors, ["no room"]);
  listener.close();
  await soon("accepting ends", accepting);
});

Deno.test({
  name: "tcp: accepting goes on when file descriptors run out" +
    (Deno.build.os === "linux" ? "" : " (skipped: needs Linux's ulimit)"),
  ignore: Deno.build.os !== "linux",
  async fn() {
    const script = new URL("few_files_main.ts", import.meta.url).pathname;
    const run = `ulimit -n 64 && exec "$1" run --quiet --allow-net=127.0.0.1 "$2"`;
    const { code, stdout, stderr } = await soon(
      "the process",
      new Deno.Command("sh", { args: ["-c", run, "sh", Deno.execPath(), script] }).output(),
      30_000,
    );
    const decode = (bytes: Uint8Array) => new TextDecoder().decode(bytes);
    assertEquals([code, decode(stdout)], [0, "served after errors\n"], decode(stderr));
  },
});
