/**
 * The rank handshake: how a rank names itself to its relay, and the relay's answer.
 *
 *     rank to relay, 16 bytes              relay to rank, 8 bytes
 *      0  u32 magic 0xF10D17C0              0  u32 magic 0xF10D17C1
 *      4  u32 protocol version              4  u32 protocol version
 *      8  u32 rank
 *     12  u32 world size
 *
 * All little-endian. Format: flodl 0.6.0.
 *
 * A rank that adds {@link SEALED} to the version follows its handshake with a nonce of 16 bytes. Before it
 * takes the rank in, the relay answers with a challenge, and the rank proves that it has the salt:
 *
 *     relay to rank, 24 bytes              rank to relay, 8 bytes
 *      0  u32 magic 0xF10D17C2              0  seal 0 of the rank, over the 16 bytes of its handshake
 *      4  u32 protocol version
 *      8  nonce
 *
 * The relay's answer is followed by a seal; from there on seals stand in the place of frames' tags, see
 * {@link ./seal.ts}.
 *
 * @module
 */
import { WireError } from "./errors.ts";
import { MAX_WORLD_SIZE } from "./limits.ts";
import { strangerHint } from "./stranger.ts";

/** First word of a rank's handshake. */
export const RANK_MAGIC = 0xf10d17c0;
/** First word of the relay's answer. */
export const ACK_MAGIC = 0xf10d17c1;
/** First word of the relay's challenge. */
export const CHALLENGE_MAGIC = 0xf10d17c2;
/** Added to the protocol version by a rank that wants the connection sealed. */
export const SEALED = 0x200;
/** The protocol version that carries f32 only. */
export const PROTOCOL_F32 = 2;
/** The protocol version that also carries bf16 and elided zeros. */
export const PROTOCOL_BF16 = 3;

/** Bytes of a handshake. */
export const HANDSHAKE_BYTES = 16;
/** Bytes of its answer. */
export const ACK_BYTES = 8;
/** Bytes of a challenge in front of its nonce. */
export const CHALLENGE_HEADER_BYTES = 8;

/** What a rank says of itself. */
export interface RankHandshake {
  /** Protocol version, {@link PROTOCOL_F32} or {@link PROTOCOL_BF16}. */
  version: number;
  /** The rank's number, below the world size. */
  rank: number;
  /** How many ranks the session has. */
  worldSize: number;
}

function view(bytes: Uint8Array): DataView {
  return new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}

function expectVersion(version: number, allowed: readonly number[], what: string): void {
  if (!allowed.includes(version)) {
    throw new WireError(
      "version",
      "connection",
      `reading ${what}: protocol version ${version}, expected ${allowed.join(" or ")}`,
    );
  }
}

function expectMagic(magic: number, wanted: number, what: string): void {
  if (magic !== wanted) {
    throw new WireError(
      "magic",
      "connection",
      `reading ${what}: magic 0x${magic.toString(16)}, expected 0x${wanted.toString(16)}` +
        strangerHint(magic),
    );
  }
}

function expectLength(bytes: Uint8Array, length: number, what: string): void {
  if (bytes.length !== length) {
    throw new WireError(
      "truncated",
      "connection",
      `reading ${what}: ${bytes.length} bytes came, expected ${length}`,
    );
  }
}

/** Encodes a handshake into 16 fresh bytes. */
export function encodeHandshake(handshake: RankHandshake): Uint8Array {
  const bytes = new Uint8Array(HANDSHAKE_BYTES);
  const out = view(bytes);
  out.setUint32(0, RANK_MAGIC, true);
  out.setUint32(4, handshake.version, true);
  out.setUint32(8, handshake.rank, true);
  out.setUint32(12, handshake.worldSize, true);
  return bytes;
}

/**
 * Decodes 16 bytes of handshake.
 *
 * @param versions The protocol versions this side speaks.
 * @param additions Bits that may be added to them.
 * @throws {WireError} on a wrong magic or version, or a rank that is not below its world size.
 */
export function decodeHandshake(
  bytes: Uint8Array,
  versions: readonly number[] = [PROTOCOL_F32],
  additions = 0,
): RankHandshake {
  const what = "a rank's handshake";
  expectLength(bytes, HANDSHAKE_BYTES, what);
  const input = view(bytes);
  expectMagic(input.getUint32(0, true), RANK_MAGIC, what);
  const version = input.getUint32(4, true);
  // An addition that is unknown here is part of an unknown version.
  expectVersion((version & ~additions) >>> 0, versions, what);
  const rank = input.getUint32(8, true);
  const worldSize = input.getUint32(12, true);
  if (worldSize > MAX_WORLD_SIZE || rank >= worldSize) {
    throw new WireError(
      "handshake",
      "connection",
      `reading ${what}: rank ${rank} of world size ${worldSize}; a rank is below its world size, ` +
        `which is at most ${MAX_WORLD_SIZE}`,
    );
  }
  return { version, rank, worldSize };
}

/** Encodes the relay's answer into 8 fresh bytes. */
export function encodeAck(version: number): Uint8Array {
  return encodeAnswer(ACK_MAGIC, version);
}

/**
 * Checks the 8 bytes of a relay's answer.
 *
 * @param version The version that the handshake asked for.
 * @throws {WireError} on a wrong magic or version.
 */
export function decodeAck(bytes: Uint8Array, version: number = PROTOCOL_F32): void {
  decodeAnswer(bytes, ACK_MAGIC, version, "the relay's answer to the handshake");
}

/** Encodes the 8 bytes in front of a challenge's nonce. */
export function encodeChallengeHeader(version: number): Uint8Array {
  return encodeAnswer(CHALLENGE_MAGIC, version);
}

/**
 * Checks the 8 bytes in front of a challenge's nonce.
 *
 * @param version The version that the handshake asked for.
 * @throws {WireError} on a wrong magic or version.
 */
export function decodeChallengeHeader(bytes: Uint8Array, version: number): void {
  decodeAnswer(bytes, CHALLENGE_MAGIC, version, "the relay's challenge");
}

function encodeAnswer(magic: number, version: number): Uint8Array {
  const bytes = new Uint8Array(ACK_BYTES);
  const out = view(bytes);
  out.setUint32(0, magic, true);
  out.setUint32(4, version, true);
  return bytes;
}

function decodeAnswer(bytes: Uint8Array, magic: number, version: number, what: string): void {
  expectLength(bytes, ACK_BYTES, what);
  const input = view(bytes);
  expectMagic(input.getUint32(0, true), magic, what);
  expectVersion(input.getUint32(4, true), [version], what);
}
