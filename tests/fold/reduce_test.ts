import { assertEquals, assertRejects } from "@std/assert";
import { PlainKernel } from "../../kernels/plain.ts";
import { foldFrames, reduceFrames } from "./reduce.ts";
import { DEFAULT_FRAME_CEILING } from "../../wire/limits.ts";
import { WireError } from "../../wire/errors.ts";
import { encodeFrame } from "../../wire/round_frame.ts";
import { bad, hex, SALT, unhex, vectorBytes } from "../vectors.ts";

const kernel = new PlainKernel();
const a = vectorBytes("round_model_a.bin");
const b = vectorBytes("round_model_b.bin");
const c = vectorBytes("round_model_c.bin");

function fold(frames: Uint8Array[], salt = SALT): Promise<Uint8Array> {
  return foldFrames(frames, salt, DEFAULT_FRAME_CEILING, kernel);
}

function reduce(frames: (Uint8Array | undefined)[], salt = SALT): Promise<Uint8Array> {
  return reduceFrames(frames, salt, DEFAULT_FRAME_CEILING, kernel);
}

async function expectBytes(actual: Promise<Uint8Array>, file: string): Promise<void> {
  assertEquals(hex(await actual), hex(vectorBytes(file)));
}

Deno.test("fold: golden vectors", async () => {
  await expectBytes(fold([a, b]), "fold_ab.bin");
  await expectBytes(fold([a, b, c]), "fold_abc.bin");
});

Deno.test("reduce: golden vectors", async () => {
  await expectBytes(reduce([a, b, c]), "reduce_abc.bin");
  await expectBytes(reduce([await fold([a, b]), c]), "reduce_hostab_c.bin");
  await expectBytes(reduce([a, undefined, c]), "reduce_a_dead_c.bin");
  await expectBytes(
    reduce([vectorBytes("round_control_1.bin"), vectorBytes("round_control_2.bin")]),
    "reduce_control.bin",
  );
  const idle = vectorBytes("round_model_idle.bin");
  await expectBytes(reduce([idle, idle], unhex("00".repeat(16))), "reduce_all_idle.bin");
});

Deno.test("fold: what the wire lets pass is refused by name", async () => {
  const refusedHere = bad("round_frame").filter(({ error }) => error!.includes("at the fold"));
  assertEquals(refusedHere.length, 2);
  for (const { file, error } of refusedHere) {
    const failure = await assertRejects(() => fold([vectorBytes(file)]), WireError);
    assertEquals(failure.message.includes("tensor 0"), true);
    assertEquals(failure.code, error!.startsWith("dtype") ? "dtype" : "shape");
  }
});

Deno.test("fold: no frame, or frames that disagree, is an error that names frame and tensor", async () => {
  const make = (kind: "model" | "control", ...shapes: number[][]) =>
    encodeFrame(
      kind,
      1,
      shapes.map((shape) => ({
        shape,
        values: new Float32Array(shape.reduce((n, dim) => n * dim, 1)),
      })),
      SALT,
    );
  const cases: [Uint8Array[], string, RegExp][] = [
    [[], "empty", /no frame/],
    [
      [make("model", [2]), make("control", [2])],
      "schema",
      /frame 1.*control frame, expected model/,
    ],
    [[make("model", [2]), make("model", [2], [1])], "schema", /frame 1.*2 tensors, expected 1/],
    [
      [make("model", [2], [2, 3]), make("model", [2], [3, 2])],
      "schema",
      /frame 1.*tensor 1 has shape \[3, 2\], expected \[2, 3\]/,
    ],
    [[make("model", [1]), make("model", [])], "schema", /tensor 0 has shape \[\], expected \[1\]/],
  ];
  for (const [frames, code, message] of cases) {
    const failure = await assertRejects(() => fold(frames), WireError);
    assertEquals(failure.code, code);
    assertEquals(message.test(failure.message), true, failure.message);
  }
});
