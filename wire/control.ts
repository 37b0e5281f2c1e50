/**
 * Control messages, the payloads of Control records: bincode 2 "standard", an enum by variant number.
 *
 *     0 Hello       { host: string, ranks: list of u32, ascending }   relay to controller, first
 *     1 HelloAck                                                      controller to relay
 *     2 RankExit    { rank: u32 }                                     relay to controller
 *     3 DeclareDead { rank: u32 }                                     controller to relay
 *
 * Bytes after Hello's ranks are ignored: later versions of flodl append a list of model signatures. Ours
 * appends an empty such list, the string "tierfold" and an integer of flags: 1 says that results may
 * carry bf16; 2 that the relay's standing follows, five integers: instance, session, round, frames sent,
 * and whether the last one's result is due; 4 that a nonce follows; 8 that the world size follows that the
 * relay was told. To such a relay HelloAck carries the string "tierfold", flags
 * 2, and three integers: session, round, and what became of that frame: 0 none was due, 1 send it again,
 * 2 wait for its result.
 *
 * @module
 */
import { BincodeReader, BincodeWriter } from "./bincode.ts";
import { WireError } from "./errors.ts";
import { MAX_HOST_NAME_BYTES, MAX_WORLD_SIZE } from "./limits.ts";
import { NONCE_BYTES } from "./seal.ts";

/** Where a relay stands in the rounds, across its channels. */
export interface HelloStanding {
  /** The number of this relay's life, drawn at its start. */
  instance: number;
  /** The controller's, as last told; 0 at first. */
  session: number;
  /** The round in which its last frame whose result is due counts, or its next one. */
  round: number;
  /** How many frames it has sent in its life, those sent again counted once. */
  sent: number;
  /** Whether the result of the last one has not come. */
  pending: boolean;
}

/** What became of a relay's last frame. */
export type FrameFate = "none" | "again" | "held";

/** Where a relay's frames come to stand. */
export interface HelloPlace {
  /** The number of the controller's session, drawn at its start. */
  session: number;
  /** The round in which its next frame counts, or that of the frame whose result is due. */
  round: number;
  fate: FrameFate;
}

/** One control message. */
export type ControlMessage =
  | {
    type: "hello";
    host: string;
    ranks: number[];
    /** All of the host's ranks speak protocol 3: results of Model rounds may carry bf16. */
    narrow?: boolean;
    /** Where the relay stands in the rounds. */
    standing?: HelloStanding;
    /** The relay's nonce, 32 hex digits: it offers seals, and says Hello again under them. */
    nonce?: string;
    /** The world size that the relay was told. */
    worldSize?: number;
  }
  /** The controller's nonce, 32 hex digits; only in answer to the relay's. */
  | { type: "nonce"; nonce: string }
  | { type: "hello_ack"; place?: HelloPlace }
  | { type: "rank_exit"; rank: number }
  | { type: "declare_dead"; rank: number };

const MAX_U32 = 0xffff_ffff;
/** Marks our own addition to Hello, behind an empty list of model signatures. */
const EXTENSION = "tierfold";
const NARROW = 1;
const STANDING = 2;
const SEALS = 4;
const WORLD_SIZE = 8;
/** Far from the variants of flodl. */
const NONCE_VARIANT = 250;
const FATES: readonly FrameFate[] = ["none", "again", "held"];

/** Encodes a message into fresh bytes. */
export function encodeControl(message: ControlMessage): Uint8Array {
  const out = new BincodeWriter();
  switch (message.type) {
    case "hello":
      out.uint(0).string(message.host).uint(message.ranks.length);
      for (const rank of message.ranks) out.uint(rank);
      writeAdditions(out, message);
      break;
    case "hello_ack":
      out.uint(1);
      if (message.place !== undefined) {
        const { session, round, fate } = message.place;
        out.string(EXTENSION).uint(STANDING).uint(session).uint(round).uint(FATES.indexOf(fate));
      }
      break;
    case "rank_exit":
      out.uint(2).uint(message.rank);
      break;
    case "declare_dead":
      out.uint(3).uint(message.rank);
      break;
    case "nonce":
      out.uint(NONCE_VARIANT).string(message.nonce);
      break;
  }
  return out.finish();
}

function writeAdditions(out: BincodeWriter, hello: ControlMessage & { type: "hello" }): void {
  const { narrow, standing, nonce, worldSize } = hello;
  const flags = (narrow ? NARROW : 0) | (standing === undefined ? 0 : STANDING) |
    (nonce === undefined ? 0 : SEALS) | (worldSize === undefined ? 0 : WORLD_SIZE);
  if (flags === 0) return;
  out.uint(0).string(EXTENSION).uint(flags);
  if (standing !== undefined) {
    const { instance, session, round, sent, pending } = standing;
    out.uint(instance).uint(session).uint(round).uint(sent).uint(pending ? 1 : 0);
  }
  if (nonce !== undefined) out.string(nonce);
  if (worldSize !== undefined) out.uint(worldSize);
}

/**
 * Decodes one whole message.
 *
 * @throws {WireError} on an unknown variant, missing or left-over bytes, or ranks out of order.
 */
export function decodeControl(bytes: Uint8Array): ControlMessage {
  const input = new BincodeReader(bytes, "a control message");
  const message = decodeVariant(input);
  if (message.type !== "hello" && input.remaining > 0) {
    throw new WireError(
      "trailing",
      "connection",
      `reading a control message: ${input.remaining} bytes follow a ${message.type}`,
    );
  }
  return message;
}

function decodeVariant(input: BincodeReader): ControlMessage {
  const variant = input.uint("the variant", MAX_U32);
  switch (variant) {
    case 0: {
      const host = input.string("Hello's host", MAX_HOST_NAME_BYTES);
      // A rank takes at least a byte, so what is left bounds the list before it is made.
      const count = input.uint("the number of Hello's ranks", input.remaining);
      const ranks: number[] = [];
      for (let i = 0; i < count; i++) {
        const rank = input.uint(`Hello's rank ${i}`, MAX_U32);
        const previous = ranks[i - 1];
        if (previous !== undefined && rank <= previous) {
          throw new WireError(
            "message",
            "connection",
            `reading Hello of host ${JSON.stringify(host)}: rank ${rank} follows ${previous}; ` +
              "ranks must ascend",
          );
        }
        ranks.push(rank);
      }
      return { type: "hello", host, ranks, ...readAdditions(input) };
    }
    case 1:
      return { type: "hello_ack", ...readPlace(input) };
    case 2:
      return { type: "rank_exit", rank: input.uint("RankExit's rank", MAX_U32) };
    case 3:
      return { type: "declare_dead", rank: input.uint("DeclareDead's rank", MAX_U32) };
    case NONCE_VARIANT:
      return { type: "nonce", nonce: readNonce(input) };
    default:
      throw new WireError(
        "message",
        "connection",
        `reading a control message: unknown variant ${variant}, expected 0-3`,
      );
  }
}

/** Our own additions, where they follow; whatever else follows is not ours to judge. */
function readAdditions(
  input: BincodeReader,
): { narrow?: true; standing?: HelloStanding; nonce?: string; worldSize?: number } {
  const flags = leniently(() => {
    if (input.remaining === 0 || input.uint("the number of signatures", 0) !== 0) return 0;
    if (input.string("an addition to Hello", EXTENSION.length) !== EXTENSION) return 0;
    return input.uint("flags", MAX_U32);
  }) ?? 0;
  const standing = flags & STANDING ? leniently(() => readStanding(input)) : undefined;
  const unread = (flags & STANDING) !== 0 && standing === undefined;
  const nonce = flags & SEALS && !unread ? leniently(() => readNonce(input)) : undefined;
  const lost = unread || (flags & SEALS) !== 0 && nonce === undefined;
  const worldSize = flags & WORLD_SIZE && !lost
    ? leniently(() => input.uint("the world size", MAX_WORLD_SIZE))
    : undefined;
  return {
    ...(flags & NARROW ? { narrow: true } : {}),
    ...(standing ? { standing } : {}),
    ...(nonce === undefined ? {} : { nonce }),
    ...(worldSize === undefined ? {} : { worldSize }),
  };
}

/** What `read` gives, or undefined where the bytes are not what it expects. */
function leniently<T>(read: () => T): T | undefined {
  try {
    return read();
  } catch (error) {
    if (error instanceof WireError) return undefined;
    throw error;
  }
}

function readStanding(input: BincodeReader): HelloStanding {
  const number = (what: string) => input.uint(what, Number.MAX_SAFE_INTEGER);
  return {
    instance: number("the instance"),
    session: number("the session"),
    round: number("the round"),
    sent: number("the frames sent"),
    pending: input.uint("whether a result is due", 1) === 1,
  };
}

function readNonce(input: BincodeReader): string {
  const nonce = input.string("a nonce", 2 * NONCE_BYTES);
  if (/^[0-9a-f]{32}$/.test(nonce)) return nonce;
  throw new WireError(
    "message",
    "connection",
    `reading a control message: ${JSON.stringify(nonce)} is no nonce, expected 32 hex digits`,
  );
}

/** The addition to HelloAck, where it follows. */
function readPlace(input: BincodeReader): { place?: HelloPlace } {
  const { remaining } = input;
  if (remaining === 0) return {};
  const place = leniently((): HelloPlace | undefined => {
    if (input.string("an addition to HelloAck", EXTENSION.length) !== EXTENSION) return undefined;
    input.uint("flags", STANDING);
    const session = input.uint("the session", Number.MAX_SAFE_INTEGER);
    const round = input.uint("the round", Number.MAX_SAFE_INTEGER);
    return { session, round, fate: FATES[input.uint("a fate", FATES.length - 1)]! };
  });
  if (place !== undefined) return { place };
  throw new WireError(
    "trailing",
    "connection",
    `reading a control message: ${remaining} bytes follow a hello_ack, and they are not ours`,
  );
}
