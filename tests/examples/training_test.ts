import { assert, assertAlmostEquals, assertEquals, assertNotEquals } from "@std/assert";
import { type Digits, PIXELS } from "../../examples/digits/data.ts";
import { DigitsModel } from "../../examples/digits/model.ts";
import { LEARNING_RATE, LocalTrainer } from "../../examples/digits/train.ts";

/** 40 digits that are easy to tell apart: label n lights pixel n. */
const easy: Digits = (() => {
  const labels = Uint8Array.from({ length: 40 }, (_, digit) => digit % 10);
  const pixels = new Float32Array(40 * PIXELS);
  labels.forEach((label, digit) => pixels[digit * PIXELS + label] = 1);
  return { pixels, labels };
})();
const everything = Uint32Array.from({ length: 40 }, (_, digit) => digit);

async function trained(steps: number, ...seeds: number[]): Promise<DigitsModel> {
  const model = await DigitsModel.create(3, LEARNING_RATE);
  await new LocalTrainer(model, easy, everything, ...seeds).run(steps);
  model.pull();
  return model;
}

Deno.test("the weights are four named tensors", async () => {
  const { parameters } = await DigitsModel.create(3, LEARNING_RATE);
  assertEquals(
    parameters.map(({ name, shape }) => [name, shape]),
    [
      ["hidden/kernel", [784, 32]],
      ["hidden/bias", [32]],
      ["digit/kernel", [32, 10]],
      ["digit/bias", [10]],
    ],
  );
  assertEquals(parameters.map(({ data }) => data.length), [25_088, 32, 320, 10]);
});

Deno.test("training learns, and repeats bit for bit", async () => {
  const first = await trained(60, 1, 2);
  const again = await trained(60, 1, 2);
  const other = await trained(60, 1, 3);
  assert(first.accuracy(easy) > 0.9, `accuracy ${first.accuracy(easy)}`);
  assertEquals(first.fingerprint(), again.fingerprint());
  assertNotEquals(first.fingerprint(), other.fingerprint());
});

Deno.test("first weights depend on the seed alone", async () => {
  const prints = await Promise.all(
    [3, 3, 4].map(async (seed) => (await DigitsModel.create(seed, 0.1)).fingerprint()),
  );
  assertEquals(prints[0], prints[1]);
  assertNotEquals(prints[0], prints[2]);
});

Deno.test("what was written into the parameters is what training goes on from", async () => {
  const model = await DigitsModel.create(3, LEARNING_RATE);
  for (const { data } of model.parameters) data.fill(0);
  model.push();
  const loss = await new LocalTrainer(model, easy, everything, 1).run(1);
  // A network of zeros holds all ten labels for equally likely.
  assertAlmostEquals(loss, Math.log(10), 1e-4);
  model.pull();
  const [kernel, , , bias] = model.parameters;
  assert(kernel!.data.every((weight) => weight === 0), "no gradient passes a layer of zeros");
  assert(bias!.data.some((weight) => weight !== 0), "the output bias has learned");
});

Deno.test("a shard smaller than a batch is trained on as it is", async () => {
  const model = await DigitsModel.create(3, LEARNING_RATE);
  const trainer = new LocalTrainer(model, easy, Uint32Array.of(7), 1);
  const first = await trainer.run(1);
  await trainer.run(20);
  const last = await trainer.run(1);
  assert(last < first, `loss went from ${first} to ${last}`);
});
