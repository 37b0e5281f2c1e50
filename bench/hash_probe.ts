/**
 * Prints how fast one core computes the protocol's tag: HMAC-SHA256 of node:crypto, streamed, in GB/s.
 * The best of several passes, since the hardware's speed is what bounds a round.
 *
 *     deno run bench/hash_probe.ts [SECONDS_PER_PASS]
 *
 * @module
 */

import { createHmac } from "node:crypto";

const PASSES = 5;
const CHUNK = 256 * 1024;

/** GB hashed per second in one pass of about so many seconds. */
function pass(seconds: number): number {
  const chunk = new Uint8Array(CHUNK).fill(0x5a);
  const hmac = createHmac("sha256", new Uint8Array(16));
  const start = performance.now();
  let bytes = 0;
  while (performance.now() - start < seconds * 1e3) {
    hmac.update(chunk);
    bytes += CHUNK;
  }
  hmac.digest();
  return bytes / (performance.now() - start) / 1e6;
}

if (import.meta.main) {
  const seconds = Number(Deno.args[0] ?? 0.3);
  pass(0.05);
  const passes = Array.from({ length: PASSES }, () => pass(seconds));
  console.log(`gb_s ${Math.max(...passes)}`);
}
