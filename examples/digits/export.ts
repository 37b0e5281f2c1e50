/**
 * Writes one rank's digits to standard output, for trainers that are not written in TypeScript.
 *
 *     deno run --allow-env examples/digits/export.ts RANK WORLD_SIZE SEED
 *
 * A line of JSON, `{"shard": N, "heldOut": M}`, then the shard's N x 784 pixels as little-endian f32 and
 * N labels as u8, then the same of the M digits that nobody trains on.
 *
 * @module
 */

import { type Digits, loadDigits, pick, split } from "./data.ts";
import { wholeNumber } from "./report.ts";

function write(bytes: Uint8Array): void {
  for (let from = 0; from < bytes.length;) from += Deno.stdout.writeSync(bytes.subarray(from));
}

function writeDigits({ pixels, labels }: Digits): void {
  const bytes = new DataView(new ArrayBuffer(pixels.byteLength));
  pixels.forEach((pixel, i) => bytes.setFloat32(4 * i, pixel, true));
  write(new Uint8Array(bytes.buffer));
  write(labels);
}

const worldSize = wholeNumber(Deno.args[1], "WORLD_SIZE", 1);
const rank = wholeNumber(Deno.args[0], "RANK", 0);
const { train, heldOut, shards } = split(
  await loadDigits(),
  worldSize,
  wholeNumber(Deno.args[2], "SEED", 0),
);
const indices = shards[rank];
if (indices === undefined) {
  throw new RangeError(`RANK: expected a number below WORLD_SIZE ${worldSize}, got ${rank}`);
}
const shard = pick(train, indices);
const counts = { shard: shard.labels.length, heldOut: heldOut.labels.length };
write(new TextEncoder().encode(`${JSON.stringify(counts)}\n`));
writeDigits(shard);
writeDigits(heldOut);
