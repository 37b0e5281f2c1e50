/**
 * Every bound of the wire, once, with the relations between them.
 *
 * @module
 */
import { invariant } from "./errors.ts";

/** Bytes of the session salt, the key of every tag. */
export const SALT_BYTES = 16;
/** Bytes of a tag: the first 8 of HMAC-SHA256. */
export const TAG_BYTES = 8;

/** Most bytes of one frame when a process does not know its model. */
export const DEFAULT_FRAME_CEILING = 1024 ** 3;
/** Least ceiling of a process that knows its model, so that small models can grow. */
export const MIN_FRAME_CEILING = 64 * 1024 ** 2;
/** Most bytes that the u32 lengths of the wire can announce; the value above marks a refusal. */
export const MAX_FRAME_BYTES = 0xffff_fffe;

/** Most tensors in a frame. */
export const MAX_TENSORS = 65_536;
/** Most dims of a tensor: a u8 counts them. */
export const MAX_DIMS = 255;

/** Most bytes of a control message; the longest one, Hello, holds at most a world of ranks. */
export const MAX_CONTROL_BYTES = 1024 ** 2;
/** Most bytes of a host's name in Hello. */
export const MAX_HOST_NAME_BYTES = 255;
/** Most ranks in one session: Hello lists them in 5 bytes each. */
export const MAX_WORLD_SIZE = 131_072;
/** Most bytes of the text that tells a peer why it was refused. */
export const MAX_REFUSAL_BYTES = 1024;

/**
 * The ceiling for a process that knows its model's size.
 *
 * @param modelBytes Bytes of one model's tensors.
 */
export function frameCeilingFor(modelBytes: number): number {
  return Math.min(Math.max(2 * modelBytes, MIN_FRAME_CEILING), MAX_FRAME_BYTES);
}

/**
 * The most bytes of a Hello that a session can take, which is the longest control message.
 *
 * @param worldSize How many ranks the session has.
 */
export function helloBytes(worldSize: number): number {
  // A rank takes at most 5 bytes; 128 are for the variant, lengths, and what later versions append.
  return Math.min(5 * worldSize + MAX_HOST_NAME_BYTES + 128, MAX_CONTROL_BYTES);
}

invariant(DEFAULT_FRAME_CEILING <= MAX_FRAME_BYTES, "the default ceiling fits a u32 length");
invariant(MIN_FRAME_CEILING <= DEFAULT_FRAME_CEILING, "the least ceiling is not above the default");
invariant(
  5 * MAX_WORLD_SIZE + MAX_HOST_NAME_BYTES + 16 <= MAX_CONTROL_BYTES,
  "the longest Hello fits a control message",
);
