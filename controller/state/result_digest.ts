/**
 * The checksum by which the ledger knows a round's result.
 *
 * @module
 */
import { createHash } from "node:crypto";
import { Breather } from "../../transport/breather.ts";
import type { FrameHeader } from "../../wire/round_frame.ts";

/** Bytes hashed between turns of the loop: below 1 ms. */
const PIECE_BYTES = 1024 ** 2;

/** SHA-256, hex, of the tensors' data, one after another, without headers; lets the loop turn. */
export async function resultDigest(
  { tensors }: FrameHeader,
  frame: Uint8Array<ArrayBufferLike>,
): Promise<string> {
  const hash = createHash("sha256");
  const breather = new Breather();
  for (const { at, nbytes } of tensors) {
    for (let from = 0; from < nbytes; from += PIECE_BYTES) {
      hash.update(frame.subarray(at + from, at + Math.min(from + PIECE_BYTES, nbytes)));
      const turn = breather.breathe();
      if (turn !== undefined) await turn;
    }
  }
  return hash.digest("hex");
}
