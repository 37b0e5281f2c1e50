import { assertEquals, assertRejects, assertStringIncludes } from "@std/assert";
import { NonFiniteScreen } from "../../fold/nonfinite.ts";
import { Arena } from "../../kernels/arena.ts";
import { WireError } from "../../wire/errors.ts";
import {
  DTYPE_BF16,
  DTYPE_F32,
  encodeFrameHeaders,
  type FrameHeader,
  layoutFrame,
} from "../../wire/round_frame.ts";
import { average, Session } from "../cluster/session.ts";
import { failure } from "../cluster/waiting.ts";

interface Held {
  bytes: Uint8Array<ArrayBufferLike>;
  header: FrameHeader;
}

/** A frame of zeros in an arena, at no alignment. */
function zeros(arena: Arena, ...tensors: { dtype: number; shape: number[]; nbytes?: number }[]) {
  const header = layoutFrame(tensors);
  const bytes = arena.alloc(header.length + 1).subarray(1);
  bytes.fill(0);
  encodeFrameHeaders(bytes, header);
  return { bytes, header };
}

function put({ bytes, header }: Held, tensor: number, element: number, value: number): void {
  const { at, dtype } = header.tensors[tensor]!;
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  if (dtype === DTYPE_F32) return view.setFloat32(at + 4 * element, value, true);
  const bits = new DataView(new ArrayBuffer(4));
  bits.setFloat32(0, value);
  view.setUint16(at + 2 * element, bits.getUint16(0), true);
}

function get({ bytes, header }: Held, tensor: number, element: number): number {
  const { at, dtype } = header.tensors[tensor]!;
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  if (dtype === DTYPE_F32) return view.getFloat32(at + 4 * element, true);
  const bits = new DataView(new ArrayBuffer(4));
  bits.setUint16(0, view.getUint16(at + 2 * element, true));
  return bits.getFloat32(0);
}

/** Past the end of a piece of either width. */
const LONG = 1024 ** 2 + 70_000;

function sample(arena: Arena): Held {
  return zeros(
    arena,
    { dtype: DTYPE_F32, shape: [3, 5] },
    { dtype: DTYPE_F32, shape: [] },
    { dtype: DTYPE_BF16, shape: [LONG] },
    { dtype: DTYPE_BF16, shape: [7], nbytes: 0 },
    { dtype: DTYPE_F32, shape: [0, 4] },
    { dtype: DTYPE_F32, shape: [LONG] },
  );
}

const places = [[0, 0], [0, 14], [1, 0], [2, 3], [2, 65_536], [2, LONG - 1], [5, LONG - 1]];

Deno.test("nonfinite: refused by tensor, shape, element and value, wherever it is", async () => {
  const arena = new Arena();
  const frame = sample(arena);
  const screen = new NonFiniteScreen(arena, "refuse");
  // The largest finite values of both formats pass.
  put(frame, 0, 3, 3.4028234663852886e38);
  put(frame, 2, 9, -3.3895313892515355e38);
  assertEquals(await screen.screen(frame, "rank 3"), 0);
  for (const value of [NaN, Infinity, -Infinity]) {
    for (const [tensor, element] of places) {
      put(frame, tensor!, element!, value);
      const error = await assertRejects(() => screen.screen(frame, "rank 3"), WireError);
      assertEquals([error.code, error.scope], ["nonfinite", "connection"]);
      assertStringIncludes(error.message, `rank 3: tensor ${tensor} of shape [`);
      assertStringIncludes(error.message, `has ${value} at element ${element},`);
      put(frame, tensor!, element!, 1);
    }
  }
});

Deno.test("nonfinite: a tensor's name stands in the refusal where it is known", async () => {
  const arena = new Arena();
  const frame = sample(arena);
  put(frame, 1, 0, NaN);
  const screen = new NonFiniteScreen(
    arena,
    "refuse",
    (tensor, count) => count === 6 ? `layer${tensor}.bias` : undefined,
  );
  await assertRejects(
    () => screen.screen(frame, "rank 0"),
    WireError,
    'tensor 1 ("layer1.bias") of shape [] has NaN at element 0',
  );
});

Deno.test("nonfinite: zero replaces exactly those values, allow touches nothing", async () => {
  const arena = new Arena();
  const frame = sample(arena);
  put(frame, 0, 7, 2.5);
  put(frame, 2, 65_537, -2);
  for (const [tensor, element] of places) put(frame, tensor!, element!, NaN);
  put(frame, 2, 4, -Infinity);
  const before = frame.bytes.slice();
  assertEquals(await new NonFiniteScreen(arena, "allow").screen(frame, "rank 0"), 0);
  assertEquals(frame.bytes.slice(), before);
  const zero = new NonFiniteScreen(arena, "zero");
  assertEquals(await zero.screen(frame, "rank 0"), places.length + 1);
  for (const [tensor, element] of [...places, [2, 4]]) {
    assertEquals(get(frame, tensor!, element!), 0);
  }
  assertEquals([get(frame, 0, 7), get(frame, 2, 65_537)], [2.5, -2]);
  assertEquals(await zero.screen(frame, "rank 0"), 0);
});

Deno.test("nonfinite: a relay refuses the rank by name, and the others finish the round", async () => {
  const manifest = [["w"], ["a", "b"]];
  await using session = await Session.start({
    hosts: [[0, 1], [2]],
    relays: { 0: { manifest } },
  });
  const clients = await session.ranks();
  const given = clients.map(({ rank }) => Float32Array.of(rank + 1, 10 * (rank + 1)));
  given[1]![1] = NaN;
  const [poison, masses] = await Promise.all([
    failure(
      "the poisoned round",
      clients[1]!.allReduce([{ name: "w", shape: [2, 1], data: given[1]! }], { mass: 1 }),
    ),
    Promise.all([0, 2].map(async (rank) => {
      const tensors = [{ shape: [2, 1], data: given[rank]! }];
      return (await clients[rank]!.allReduce(tensors, { mass: 1 })).mass;
    })),
  ]);
  assertStringIncludes(poison.message, 'tensor 0 ("w") of shape [2, 1] has NaN at element 1');
  assertEquals(masses, [2, 2]);
  assertEquals([given[0], given[2]], [Float32Array.of(2, 20), Float32Array.of(2, 20)]);
  await session.log.has("rank 1 is out", "has NaN at element 1", "the round goes on without it");
});

Deno.test("nonfinite: bf16 frames are looked through too", async () => {
  await using session = await Session.start({ hosts: [[0, 1]] });
  const clients = await Promise.all([0, 1].map((rank) => session.rank(rank, { wire: "bf16" })));
  const given = [Float32Array.of(1, 2, -Infinity), Float32Array.of(3, 4, 5)];
  const [poison] = await Promise.all([
    failure("the poisoned round", clients[0]!.allReduce([given[0]!], { mass: 1 })),
    clients[1]!.allReduce([given[1]!], { mass: 1 }),
  ]);
  assertStringIncludes(poison.message, "has -Infinity at element 2");
  assertEquals(given[1], Float32Array.of(3, 4, 5));
});

Deno.test("nonfinite: by option a relay takes them as zeros, or as they are", async () => {
  const cases = [["zero", [2, 20]], ["allow", [2, NaN]]] as const;
  for (const [nonfinite, wanted] of cases) {
    await using session = await Session.start({ hosts: [[0, 1]], relays: { 0: { nonfinite } } });
    const clients = await session.ranks();
    const given = [Float32Array.of(1, NaN), Float32Array.of(3, 40)];
    await average(clients, given, [1, 1]);
    assertEquals(given, [Float32Array.from(wanted), Float32Array.from(wanted)]);
    if (nonfinite === "zero") await session.log.has("rank 0 sent 1 values", "count as 0");
  }
});
