// The DWE fragment against the golden vectors, and against damage.
import {
  assert,
  assertEquals,
  assertInstanceOf,
  assertStringIncludes,
  assertThrows,
} from "@std/assert";
import * as fc from "fast-check";
import {
  checkDweLength,
  checkDweStateHash,
  decodeDwe,
  DWE_MAX_BYTES,
  dweEncodedBytes,
  DweError,
  type DweFragment,
  dweStateHash,
  encodeDwe,
  openDwe,
  sealDwe,
  verifyDwe,
} from "../../wire/dwe.ts";
import { bad, good, hex, type Vector, vectorBytes } from "../vectors.ts";

interface DweVector extends Vector {
  key?: string;
  session_id: string;
  sequence: number | string;
  layers?: { layer_index: number; shape: number[]; values_f32le: string }[];
  state_hash: string;
  hmac: string | null;
}

const key = (text: string) => new TextEncoder().encode(text);
const FLEET = key("fleet-secret");
const OLD = key("old-key");

function codeOf(run: () => unknown): string {
  const error = assertThrows(run);
  assertInstanceOf(error, DweError);
  return (error as DweError).code;
}

function bitsOf(values: Float32Array): string {
  return hex(new Uint8Array(values.buffer, values.byteOffset, values.byteLength));
}

Deno.test("DWE vectors decode to the index's values and encode back", () => {
  const vectors = good("dwe") as DweVector[];
  assertEquals(vectors.length, 5);
  for (const vector of vectors) {
    const bytes = vectorBytes(vector.file);
    const decoded = decodeDwe(bytes);
    const { fragment } = decoded;
    assertEquals(fragment.sessionId, vector.session_id, vector.file);
    assertEquals(fragment.sequence, BigInt(vector.sequence), vector.file);
    assertEquals(fragment.stateHash, vector.state_hash, vector.file);
    assertEquals(fragment.hmac ?? null, vector.hmac, vector.file);
    for (const [i, layer] of (vector.layers ?? []).entries()) {
      assertEquals(fragment.layers[i]!.layerIndex, layer.layer_index, vector.file);
      assertEquals(fragment.layers[i]!.shape, layer.shape, vector.file);
      assertEquals(bitsOf(fragment.layers[i]!.values), layer.values_f32le, vector.file);
    }
    assertEquals(encodeDwe(fragment), bytes, vector.file);
    const keys = vector.key === undefined ? {} : { current: key(vector.key) };
    assertEquals(verifyDwe(decoded, keys), vector.key === undefined ? undefined : "current");
    // One vector shows the signature alone; its state hash is made up.
    if (vector.state_hash === "abc") {
      assertEquals(codeOf(() => checkDweStateHash(fragment)), "StateHash");
      continue;
    }
    assertEquals(dweStateHash(fragment.layers), vector.state_hash, vector.file);
    assertEquals(sealDwe(fragment, keys.current), bytes, vector.file);
    assertEquals(openDwe(bytes, keys), fragment);
  }
});

Deno.test("bad DWE vectors are refused for the index's reason", () => {
  const vectors = bad("dwe") as DweVector[];
  assertEquals(vectors.length, 3);
  for (const vector of vectors) {
    const error = assertThrows(() =>
      openDwe(vectorBytes(vector.file), { current: key(vector.key!) })
    );
    assertInstanceOf(error, DweError, vector.file);
    assertStringIncludes((error as DweError).message, vector.error!.split(",")[0]!, vector.file);
  }
});

Deno.test("the rotation window: current, then previous, then nothing", () => {
  const rotated = { current: FLEET, previous: OLD };
  assertEquals(verifyDwe(decodeDwe(vectorBytes("dwe_signed.bin")), rotated), "current");
  assertEquals(
    verifyDwe(decodeDwe(vectorBytes("dwe_signed_previous_key.bin")), rotated),
    "previous",
  );
  const closed = () => openDwe(vectorBytes("dwe_signed_previous_key.bin"), { current: FLEET });
  assertEquals(codeOf(closed), "BadSignature");
  assertEquals(
    codeOf(() => openDwe(vectorBytes("dwe_unsigned.bin"), { current: FLEET })),
    "Unsigned",
  );
  assertEquals(
    codeOf(() => openDwe(vectorBytes("dwe_unsigned.bin"), { previous: OLD })),
    "Unsigned",
  );
  // Without any key there is nothing to check a signature against.
  assertEquals(openDwe(vectorBytes("dwe_signed.bin"), {}).sequence, 7n);
});

Deno.test("an hmac of another case or length is refused", () => {
  const { fragment } = decodeDwe(vectorBytes("dwe_signed.bin"));
  for (const hmac of [fragment.hmac!.toUpperCase(), fragment.hmac!.slice(1), "", "é".repeat(32)]) {
    const bytes = encodeDwe({ ...fragment, hmac });
    assertEquals(codeOf(() => openDwe(bytes, { current: FLEET })), "BadSignature", hmac);
  }
});

Deno.test("a DWE fragment cut anywhere is truncated, and lengthened it has trailing bytes", () => {
  for (const vector of good("dwe")) {
    const bytes = vectorBytes(vector.file);
    for (let length = 0; length < bytes.length; length++) {
      assertEquals(codeOf(() => decodeDwe(bytes.subarray(0, length))), "Truncated");
    }
    assertEquals(codeOf(() => decodeDwe(Uint8Array.of(...bytes, 0))), "Trailing");
  }
});

Deno.test("a signed DWE fragment with any bit flipped is refused", () => {
  const bytes = vectorBytes("dwe_signed.bin");
  for (let bit = 0; bit < bytes.length * 8; bit++) {
    const flipped = Uint8Array.from(bytes);
    flipped[bit >> 3]! ^= 1 << (bit & 7);
    assertThrows(() => openDwe(flipped, { current: FLEET }), DweError);
  }
});

Deno.test("an unsigned DWE fragment with any bit of its layers flipped fails its state hash", () => {
  const bytes = vectorBytes("dwe_unsigned.bin");
  const from = 20 + 10 + 8 + 8;
  for (let bit = from * 8; bit < (bytes.length - 73) * 8; bit++) {
    const flipped = Uint8Array.from(bytes);
    flipped[bit >> 3]! ^= 1 << (bit & 7);
    assertThrows(() => openDwe(flipped, {}), DweError);
  }
});

Deno.test("lengths above 8 MiB are refused, and a fragment may be exactly that long", () => {
  checkDweLength(DWE_MAX_BYTES);
  assertEquals(codeOf(() => checkDweLength(DWE_MAX_BYTES + 1)), "Oversized");
  const room = DWE_MAX_BYTES - dweEncodedBytes("s", [{ ndim: 2, valueCount: 0 }]);
  const content = (values: number) => ({
    sessionId: "s",
    sequence: 1n,
    layers: [{ layerIndex: 0, shape: [1, values], values: new Float32Array(values) }],
  });
  const fits = Math.floor(room / 4);
  assert(sealDwe(content(fits), FLEET).length <= DWE_MAX_BYTES);
  assertEquals(codeOf(() => sealDwe(content(fits + 1), FLEET)), "Oversized");
});

Deno.test("an encoded fragment has the bytes that were foretold", () => {
  const layers = [{ layerIndex: 3, shape: [2, 1], values: Float32Array.of(1, 2) }];
  const bytes = sealDwe({ sessionId: "é", sequence: 1n, layers }, FLEET);
  assertEquals(bytes.length, dweEncodedBytes("é", [{ ndim: 2, valueCount: 2 }]));
});

Deno.test("impossible text, options and indices are malformed", () => {
  const damage = (at: number, ...bytes: number[]) => {
    const copy = vectorBytes("dwe_unsigned.bin");
    copy.set(bytes, at);
    return codeOf(() => decodeDwe(copy));
  };
  assertEquals(damage(8, 0x41), "Schema");
  assertEquals(damage(8, 0xff), "Malformed");
  assertEquals(damage(222, 2), "Malformed");
  const indexAt = 20 + 10 + 8 + 8;
  assertEquals(damage(indexAt, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff), "Malformed");
});

Deno.test("any fragment survives a round trip", () => {
  const layer = fc.record({
    layerIndex: fc.maxSafeNat(),
    shape: fc.array(fc.maxSafeNat(), { maxLength: 4 }),
    values: fc.float32Array({ maxLength: 9 }),
  });
  fc.assert(fc.property(
    fc.record({
      sessionId: fc.string({ unit: "grapheme" }),
      sequence: fc.bigInt({ min: 0n, max: 2n ** 64n - 1n }),
      layers: fc.array(layer, { maxLength: 4 }),
      stateHash: fc.string(),
      hmac: fc.option(fc.string(), { nil: undefined }),
    }),
    (fragment: DweFragment) => {
      assertEquals(decodeDwe(encodeDwe(fragment)).fragment, fragment);
      assertEquals(openDwe(sealDwe(fragment, FLEET), { current: FLEET }).layers, fragment.layers);
    },
  ));
});
