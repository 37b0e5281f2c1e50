import { assert, assertEquals, assertNotEquals, assertThrows } from "@std/assert";
import {
  CLASSES,
  type Digits,
  histogram,
  loadDigits,
  pick,
  PIXELS,
  split,
} from "../../examples/digits/data.ts";
import { stepsPerRound } from "../../examples/digits/train.ts";

/** `count` digits of which every pixel says which digit it is; labels go round. */
function numbered(count: number): Digits {
  const pixels = new Float32Array(count * PIXELS);
  for (let digit = 0; digit < count; digit++) {
    pixels.fill(digit, digit * PIXELS, (digit + 1) * PIXELS);
  }
  return { pixels, labels: Uint8Array.from({ length: count }, (_, digit) => digit % CLASSES) };
}

/** Which digits of {@link numbered} these are. */
const numbersOf = ({ pixels, labels }: Digits) =>
  Array.from(labels, (_, digit) => pixels[digit * PIXELS]!);

Deno.test("the data set is 10,000 digits of all labels, with pixels from 0 to 1", async () => {
  const { pixels, labels } = await loadDigits();
  assertEquals(labels.length, 10_000);
  assertEquals(pixels.length, 10_000 * PIXELS);
  assertEquals(histogram(labels), [1001, 1127, 991, 1032, 980, 863, 1014, 1070, 944, 978]);
  assert(pixels.every((pixel) => pixel >= 0 && pixel <= 1));
  assert(pixels.some((pixel) => pixel > 0.99));
});

Deno.test("every digit is held out or in exactly one shard, for any number of ranks", () => {
  const all = numbered(2_000);
  for (const ranks of [1, 2, 3, 4, 7, 16, 32]) {
    const { heldOut, train, shards } = split(all, ranks, 5);
    assertEquals(shards.length, ranks);
    const dealt = shards.flatMap((shard) => numbersOf(pick(train, shard)));
    const everything = [...numbersOf(heldOut), ...dealt].sort((a, b) => a - b);
    assertEquals(everything, Array.from({ length: 2_000 }, (_, digit) => digit), `${ranks} ranks`);
  }
});

Deno.test("digits keep their labels", () => {
  const all = numbered(500);
  const { heldOut, train, shards } = split(all, 3, 5);
  for (const digits of [heldOut, ...shards.map((shard) => pick(train, shard))]) {
    assertEquals([...digits.labels], numbersOf(digits).map((digit) => digit % CLASSES));
  }
});

Deno.test("a fifth of every label is held out", () => {
  const { heldOut, train } = split(numbered(2_000), 4, 5);
  assertEquals(histogram(heldOut.labels), new Array(CLASSES).fill(40));
  assertEquals(histogram(train.labels), new Array(CLASSES).fill(160));
});

Deno.test("shards are unequal: 4, 3, 2 and 1 tenth", () => {
  const { shards } = split(numbered(2_000), 4, 5);
  assertEquals(shards.map((shard) => shard.length), [640, 480, 320, 160]);
});

Deno.test("shards are skewed: a rank owns a few labels and has seen a little of the others", () => {
  const { train, shards } = split(numbered(10_000), 4, 5);
  for (const [rank, shard] of shards.entries()) {
    const counts = histogram(pick(train, shard).labels);
    const own = counts.filter((count) => count > shard.length / 20);
    const share = own.reduce((sum, count) => sum + count, 0) / shard.length;
    assert(own.length <= 5, `rank ${rank} owns ${own.length} labels: ${counts}`);
    assert(share > 0.8 && share < 1, `rank ${rank} has ${share} of its digits of its own labels`);
    assert(counts.every((count) => count > 0), `rank ${rank} never saw a label: ${counts}`);
  }
});

Deno.test("the same seed splits alike, another one differently", () => {
  const all = numbered(1_000);
  assertEquals(split(all, 4, 5), split(all, 4, 5));
  const { heldOut, shards } = split(all, 4, 5);
  const other = split(all, 4, 6);
  assertNotEquals(numbersOf(heldOut), numbersOf(other.heldOut));
  assertNotEquals(shards[0], other.shards[0]);
});

Deno.test("too few digits for so many ranks are refused, and so is no rank at all", () => {
  assertThrows(() => split(numbered(100), 32, 5), RangeError, "into 32 shards");
  assertThrows(() => split(numbered(100), 0, 5), RangeError, "into 0 shards");
});

Deno.test("steps follow the size of the shard, and nobody makes none", () => {
  assertEquals(stepsPerRound([3_200, 2_400, 1_600, 800]), [10, 8, 5, 3]);
  assertEquals(stepsPerRound(Float32Array.of(1_000, 1)), [10, 1]);
});
