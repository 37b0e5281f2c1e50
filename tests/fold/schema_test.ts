import { assert, assertEquals, assertThrows } from "@std/assert";
import * as fc from "fast-check";
import { checkFoldable, schemaDifference, schemaError, splitBySchema } from "../../fold/schema.ts";
import { WireError } from "../../wire/errors.ts";
import type { FrameHeader } from "../../wire/round_frame.ts";
import { held } from "./frames.ts";

const header = (...shapes: number[][]) => held(shapes).header;

function changed(base: FrameHeader, tensor: Partial<FrameHeader["tensors"][number]>): FrameHeader {
  return { ...base, tensors: base.tensors.map((old, i) => i === 1 ? { ...old, ...tensor } : old) };
}

Deno.test("schema: differences name the tensor and both sides", () => {
  const base = header([2], [3, 1], []);
  const rows: [FrameHeader, string | undefined][] = [
    [header([2], [3, 1], []), undefined],
    [{ ...base, weight: 7 }, undefined],
    [{ ...base, kind: "control" }, "it is a control frame, expected model"],
    [header([2], [3, 1]), "it has 2 tensors, expected 3"],
    [header([2], [1, 3], []), "tensor 1 has shape [1, 3], expected [3, 1]"],
    [header([2], [3], []), "tensor 1 has shape [3], expected [3, 1]"],
    [header([2], [3, 1], [1]), "tensor 2 has shape [1], expected []"],
    [changed(base, { dtype: 1 }), "tensor 1 has dtype bf16, expected f32; all ranks send the same"],
  ];
  for (const [other, difference] of rows) assertEquals(schemaDifference(other, base), difference);
  const error = schemaError("rank 3", "it is odd", "rank 0");
  assertEquals(
    error.message,
    "folding the frame of rank 3 with that of rank 0: it is odd; the round goes on without rank 3",
  );
  assertEquals([error.code, error.scope], ["schema", "connection"]);
});

Deno.test("schema: what no frame may say of itself", () => {
  const base = header([2], [3, 1], []);
  checkFoldable(base, "rank 1");
  const rows: [FrameHeader, number, string | undefined][] = [
    [changed(base, { dtype: 1 }), 2, "folding the frame of rank 1: tensor 1 has dtype 1"],
    [changed(base, { dtype: 2 }), 3, "tensor 1 has dtype 2"],
    [changed(base, { nbytes: 8 }), 2, "tensor 1 of shape [3, 1] needs 12 bytes and carries 8"],
    [changed(base, { nbytes: 0 }), 2, "needs 12 bytes and carries 0"],
    [changed(base, { nbytes: 0 }), 3, undefined],
    [changed(base, { dtype: 1, nbytes: 6 }), 3, undefined],
    [changed(base, { dtype: 1 }), 3, "needs 6 bytes and carries 12"],
    [changed(base, { shape: [2 ** 31, 2 ** 31, 2 ** 31] }), 2, "carries 12"],
  ];
  for (const [bad, version, text] of rows) {
    if (text === undefined) checkFoldable(bad, "rank 1", version);
    else {
      const { message } = assertThrows(() => checkFoldable(bad, "rank 1", version), WireError);
      assert(message.includes(text), message);
    }
  }
});

Deno.test("schema: the one with most votes stays, of equals the first", () => {
  const [a, b, c] = [header([1]), header([2]), header([1], [1])];
  const rows: [FrameHeader[], number[], kept: number[], odd: number[]][] = [
    [[], [], [], []],
    [[a], [1], [0], []],
    [[a, a, a], [1, 1, 1], [0, 1, 2], []],
    [[a, b, a], [1, 1, 1], [0, 2], [1]],
    [[a, b, b], [1, 1, 1], [1, 2], [0]],
    [[a, b], [1, 1], [0], [1]],
    [[a, b], [1, 2], [1], [0]],
    [[a, b, c, b], [2, 1, 1, 1], [0], [1, 2, 3]],
    [[a, b, c, b], [1, 1, 3, 1], [2], [0, 1, 3]],
  ];
  for (const [headers, votes, kept, odd] of rows) {
    const split = splitBySchema(headers, votes);
    assertEquals([split.kept, split.odd.map(({ index }) => index)], [kept, odd]);
  }
});

Deno.test("schema: a split keeps frames that agree, loses none, and nobody beats the winner", () => {
  const kinds = [header([1]), header([2]), header([]), header([1], [1])];
  const frame = fc.record({ kind: fc.nat(3), votes: fc.integer({ min: 1, max: 4 }) });
  fc.assert(fc.property(fc.array(frame, { minLength: 1, maxLength: 10 }), (list) => {
    const { kept, odd } = splitBySchema(
      list.map(({ kind }) => kinds[kind]!),
      list.map(({ votes }) => votes),
    );
    const all = [...kept, ...odd.map(({ index }) => index)].sort((a, b) => a - b);
    assertEquals(all, list.map((_, i) => i));
    const won = list[kept[0]!]!.kind;
    const votes = (kind: number) =>
      list.reduce((sum, one) => one.kind === kind ? sum + one.votes : sum, 0);
    list.forEach(({ kind }, i) => assertEquals(kept.includes(i), kind === won));
    for (let kind = 0; kind < 4; kind++) assert(votes(kind) <= votes(won));
    for (const { difference } of odd) assert(difference.length > 0);
  }));
});
