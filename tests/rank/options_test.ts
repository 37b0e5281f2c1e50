import { hex, SESSION_SALT } from "../vectors.ts";
import { assert, assertEquals, assertRejects, assertThrows } from "@std/assert";
import { RankClient, type RankOptions, tcp } from "../../mod.ts";
import { checkOptions } from "../../rank/options.ts";
import { layoutFor, normalizeTensors } from "../../rank/tensors.ts";
import { MAX_WORLD_SIZE } from "../../wire/limits.ts";
import { DTYPE_BF16, DTYPE_F32 } from "../../wire/round_frame.ts";

const good: RankOptions = {
  relay: "127.0.0.1:7",
  rank: 1,
  worldSize: 3,
  salt: "9d1c4be07a52f8360ee5b3476d91c82f",
};

Deno.test("rank options: what is left out, and the forms that are taken", () => {
  assertEquals(checkOptions(good), {
    relay: { hostname: "127.0.0.1", port: 7 },
    rank: 1,
    worldSize: 3,
    salt: SESSION_SALT,
    wire: "f32",
    seal: false,
    catchUp: undefined,
    network: tcp,
    joinTimeoutMs: 60_000,
    roundTimeoutMs: 900_000,
  });
  const salt = SESSION_SALT.slice();
  const settings = checkOptions({
    ...good,
    relay: "[::1]:65535",
    salt,
    wire: "bf16",
    joinTimeoutMs: 1,
    roundTimeoutMs: 2 ** 31 - 1,
  });
  assertEquals(settings.relay, { hostname: "::1", port: 65_535 });
  salt.fill(0);
  assertEquals(settings.salt, SESSION_SALT);
  assertEquals(
    checkOptions({ ...good, salt: ` ${hex(SESSION_SALT).toUpperCase()}\n` }).salt[0],
    0x9d,
  );
});

Deno.test("rank options: what cannot be is a RangeError that says what and what was expected", async () => {
  const rows: [options: Partial<RankOptions>, text: string][] = [
    [{ worldSize: 0 }, "connecting a rank: world size 0, expected 1 to"],
    [{ worldSize: 2.5 }, "world size 2.5"],
    [{ worldSize: NaN }, "world size NaN"],
    [{ worldSize: MAX_WORLD_SIZE + 1 }, `expected 1 to ${MAX_WORLD_SIZE}`],
    [{ rank: 3 }, "connecting a rank: rank 3, expected 0 to 2"],
    [{ rank: -1 }, "rank -1, expected 0 to 2"],
    [{ rank: 0.5 }, "rank 0.5"],
    [{ salt: "" }, "connecting a rank: the salt has 0 characters, expected 32 hex digits"],
    [{ salt: "0a".repeat(15) }, "the salt has 30 characters"],
    [{ salt: "zz".repeat(16) }, "expected 32 hex digits"],
    [{ salt: new Uint8Array(16) }, "the salt could be guessed: its bytes count or repeat"],
    [{ salt: new Uint8Array(15) }, "the salt has 15 bytes, expected 16"],
    [{ wire: "f16" as "f32" }, 'connecting a rank: wire "f16", expected f32 or bf16'],
    [{ joinTimeoutMs: 0 }, "connecting a rank: joinTimeoutMs 0, expected 1 to 2147483647"],
    [{ joinTimeoutMs: NaN }, "joinTimeoutMs NaN"],
    [
      { roundTimeoutMs: Infinity },
      "roundTimeoutMs Infinity, expected 1 to 2147483647 milliseconds",
    ],
    [{ roundTimeoutMs: 2 ** 31 }, "roundTimeoutMs 2147483648"],
    ...["", "127.0.0.1", ":7", "127.0.0.1:", "h:0", "h:65536", "::1:7", "h:7:8", "h: 7", "[]:7"]
      .map((
        relay,
      ): [Partial<RankOptions>, string] => [
        { relay },
        `connecting a rank: relay address ${JSON.stringify(relay)}, expected HOST:PORT`,
      ]),
  ];
  for (const [options, text] of rows) {
    const { message } = await assertRejects(
      () => RankClient.connect({ ...good, joinTimeoutMs: 50, ...options }),
      RangeError,
    );
    assert(message.includes(text), `"${message}" does not have "${text}"`);
    assert(!message.includes("0a0a"), "the salt is in the message");
    assert(!message.includes("zz"), "the salt is in the message");
  }
});

Deno.test("rank: nobody at the relay's address, or one that never answers", async (t) => {
  const connect = (port: number) =>
    RankClient.connect({ ...good, relay: `127.0.0.1:${port}`, joinTimeoutMs: 120 });
  await t.step("nobody", async () => {
    const listener = Deno.listen({ hostname: "127.0.0.1", port: 0 });
    const { port } = listener.addr;
    listener.close();
    const { message, name } = await assertRejects(() => connect(port), Error);
    assert(message.startsWith(`connecting to the relay of rank 1 at 127.0.0.1:${port}: `), message);
    assertEquals(name, "TransportError");
  });
  await t.step("no answer", async () => {
    using listener = Deno.listen({ hostname: "127.0.0.1", port: 0 });
    const { message } = await assertRejects(() => connect(listener.addr.port), Error);
    assertEquals(
      message,
      `rank 1 waits to be let in: 127.0.0.1:${listener.addr.port} took longer than 120 ms`,
    );
  });
  const answers: [name: string, answer: number[], text: string][] = [
    ["the end", [], "closed the connection at the handshake of rank 1 of 3; its log says why"],
    ["half an answer", [0xc1, 0x17], "the stream ended after 2 of 8 bytes"],
    [
      "something else",
      [0x48, 0x54, 0x54, 0x50, 0x2f, 0x31, 0x2e, 0x31],
      "reading the relay's answer to the handshake: magic 0x50545448, expected 0xf10d17c1",
    ],
    [
      "another version",
      [0xc1, 0x17, 0x0d, 0xf1, 7, 0, 0, 0],
      "protocol version 7, expected 2",
    ],
    [
      "a refusal that nobody signed",
      [0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 0x68, 0x69],
      "refused rank 1 of 3 with a reason that is not signed with our salt",
    ],
    [
      "a refusal without end",
      [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8],
      "refused rank 1 of 3 with an unreadable reason",
    ],
  ];
  for (const [name, answer, text] of answers) {
    await t.step(name, async () => {
      using listener = Deno.listen({ hostname: "127.0.0.1", port: 0 });
      const answering = (async () => {
        using conn = await listener.accept();
        await conn.read(new Uint8Array(16));
        await conn.write(Uint8Array.from(answer));
        await conn.closeWrite();
        await conn.read(new Uint8Array(1));
      })();
      const { message } = await assertRejects(() => connect(listener.addr.port), Error);
      assert(message.includes(text), message);
      await answering;
    });
  }
});

Deno.test("rank tensors: names and shapes that are left out; layouts that are kept", () => {
  const data = new Float32Array([1, 2, 3, 4]);
  const [flat, named, scalar] = normalizeTensors([
    data,
    { name: "w", shape: [2, 2], data },
    { shape: [], data: data.subarray(1, 2) },
  ]);
  assertEquals([flat!.name, flat!.shape], ["tensor 0", [4]]);
  assertEquals([named!.name, named!.shape], ["w", [2, 2]]);
  assertEquals([scalar!.name, scalar!.shape, scalar!.bytes.length], ["tensor 2", [], 4]);
  const first = layoutFor([flat!, named!], DTYPE_F32, undefined);
  assertEquals(layoutFor([flat!, named!], DTYPE_F32, first) === first, true);
  for (
    const other of [
      layoutFor([flat!, named!], DTYPE_BF16, first),
      layoutFor([flat!], DTYPE_F32, first),
      layoutFor([named!, flat!], DTYPE_F32, first),
      layoutFor([flat!, { ...named!, shape: [4, 1] }], DTYPE_F32, first),
      layoutFor([flat!, { ...named!, shape: [4] }], DTYPE_F32, first),
    ]
  ) assertEquals(other === first, false);
});

Deno.test("rank tensors: what is none is a TypeError that says what came", () => {
  const given = (value: unknown) => () => normalizeTensors(value as never);
  assertThrows(given(new Float32Array(2)), TypeError, "expected a list of them, got Float32Array");
  assertThrows(given(undefined), TypeError, "got undefined");
  assertThrows(given([[1, 2]]), TypeError, "sending tensor 0: expected a Float32Array");
  assertThrows(given([new Float64Array(2)]), TypeError, "got Float64Array");
  assertThrows(given([{ name: "w", data: [1] }]), TypeError, "sending w: expected a Float32Array");
});
