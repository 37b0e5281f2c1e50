/**
 * How a rank makes itself known to its relay, with or without seals.
 *
 * @module
 */
import { readRefusal } from "../frames/refusals.ts";
import type { Link } from "../transport/link.ts";
import { TransportError } from "../transport/connection.ts";
import {
  ACK_BYTES,
  decodeAck,
  decodeChallengeHeader,
  encodeHandshake,
  PROTOCOL_BF16,
  type RankHandshake,
  SEALED,
} from "../wire/handshake.ts";
import { isRefusal } from "../wire/refusal.ts";
import { NONCE_BYTES, SEAL_BYTES, sealKey, Seals } from "../wire/seal.ts";

/** The seals of a connection, by direction. */
export interface ConnectionSeals {
  readonly up: Seals;
  readonly down: Seals;
}

/**
 * Says who we are, and waits to be let in.
 *
 * @param handshake With every addition to the protocol version.
 * @returns The connection's seals, when the version asks for them.
 * @throws {TransportError} when the relay closes or refuses this rank.
 * @throws {WireError} when what answers is not a relay, or not one of our session.
 */
export async function greet(
  link: Link,
  handshake: RankHandshake,
  salt: Uint8Array,
): Promise<ConnectionSeals | undefined> {
  const { version, rank } = handshake;
  const bytes = encodeHandshake(handshake);
  const what = `the handshake of rank ${rank}`;
  let seals: ConnectionSeals | undefined;
  if ((version & SEALED) === 0) await link.writeFully(bytes, what);
  else {
    const nonce = crypto.getRandomValues(new Uint8Array(NONCE_BYTES));
    const offer = new Uint8Array(bytes.length + nonce.length);
    offer.set(bytes);
    offer.set(nonce, bytes.length);
    await link.writeFully(offer, what);
    const challenge = await readAnswer(link, handshake, salt);
    decodeChallengeHeader(challenge, version);
    const other = new Uint8Array(NONCE_BYTES);
    if (!await link.readFully(other, "the relay's challenge")) throw closed(link, handshake);
    const key = sealKey(salt, nonce, other, "rank");
    seals = { up: new Seals(key, "up"), down: new Seals(key, "down") };
    await link.writeFully(seals.up.next(bytes), `the proof of rank ${rank}`);
  }
  const answer = await readAnswer(link, handshake, salt);
  decodeAck(answer, version);
  if (seals === undefined) return undefined;
  const seal = new Uint8Array(SEAL_BYTES);
  if (!await link.readFully(seal, "the seal of the answer to a handshake")) {
    throw closed(link, handshake);
  }
  seals.down.expect(answer, seal);
  return seals;
}

/** What a refusal says, as an error. */
export async function refusal(
  link: Link,
  start: Uint8Array,
  salt: Uint8Array,
  { rank, worldSize }: { rank: number; worldSize: number },
): Promise<TransportError> {
  const reason = await readRefusal(link, start, salt);
  return new TransportError(
    "closed",
    `the relay at ${link.peer} refused rank ${rank} of ${worldSize} ${reason}`,
  );
}

/** The first bytes of an answer, unless they begin a refusal. */
async function readAnswer(
  link: Link,
  handshake: RankHandshake,
  salt: Uint8Array,
): Promise<Uint8Array> {
  const answer = new Uint8Array(ACK_BYTES);
  const what = `the answer to the handshake of rank ${handshake.rank}`;
  if (!await link.readFully(answer, what)) throw closed(link, handshake);
  if (isRefusal(answer)) throw await refusal(link, answer, salt, handshake);
  return answer;
}

function closed(link: Link, { version, rank, worldSize }: RankHandshake): TransportError {
  const lacks = [
    ...(version & 0xff) >= PROTOCOL_BF16 ? ["bf16 (protocol 3)"] : [],
    ...(version & SEALED) !== 0 ? ["sealed connections"] : [],
  ];
  return new TransportError(
    "closed",
    `the relay at ${link.peer} closed the connection at the handshake of rank ${rank} of ` +
      `${worldSize}; its log says why${
        lacks.length === 0 ? "" : `, perhaps that it cannot take ${lacks.join(", or ")}`
      }`,
  );
}
