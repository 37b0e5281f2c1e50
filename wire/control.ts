/**
 * Control messages, the payloads of Control records: bincode 2 "standard", an enum by variant number.
 *
 *     0 Hello       { host: string, ranks: list of u32, ascending }   relay to controller, first
 *     1 HelloAck                                                      controller to relay
 *     2 RankExit    { rank: u32 }                                     relay to controller
 *     3 DeclareDead { rank: u32 }                                     controller to relay
 *
 * Bytes after Hello's ranks are ignored: later versions of flodl append a list of model signatures. Ours
 * appends, where it has something to say, an empty such list, the string "tierfold" and an integer of
 * flags: 1 says that results may carry bf16.
 *
 * @module
 */
import { BincodeReader, BincodeWriter } from "./bincode.ts";
import { WireError } from "./errors.ts";
import { MAX_HOST_NAME_BYTES } from "./limits.ts";

/** One control message. */
export type ControlMessage =
  | {
    type: "hello";
    host: string;
    ranks: number[];
    /** All of the host's ranks speak protocol 3: results of Model rounds may carry bf16. */
    narrow?: boolean;
  }
  | { type: "hello_ack" }
  | { type: "rank_exit"; rank: number }
  | { type: "declare_dead"; rank: number };

const MAX_U32 = 0xffff_ffff;
/** Marks our own addition to Hello, behind an empty list of model signatures. */
const EXTENSION = "tierfold";
const NARROW = 1;

/** Encodes a message into fresh bytes. */
export function encodeControl(message: ControlMessage): Uint8Array {
  const out = new BincodeWriter();
  switch (message.type) {
    case "hello":
      out.uint(0).string(message.host).uint(message.ranks.length);
      for (const rank of message.ranks) out.uint(rank);
      if (message.narrow) out.uint(0).string(EXTENSION).uint(NARROW);
      break;
    case "hello_ack":
      out.uint(1);
      break;
    case "rank_exit":
      out.uint(2).uint(message.rank);
      break;
    case "declare_dead":
      out.uint(3).uint(message.rank);
      break;
  }
  return out.finish();
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
      return readNarrow(input)
        ? { type: "hello", host, ranks, narrow: true }
        : { type: "hello", host, ranks };
    }
    case 1:
      return { type: "hello_ack" };
    case 2:
      return { type: "rank_exit", rank: input.uint("RankExit's rank", MAX_U32) };
    case 3:
      return { type: "declare_dead", rank: input.uint("DeclareDead's rank", MAX_U32) };
    default:
      throw new WireError(
        "message",
        "connection",
        `reading a control message: unknown variant ${variant}, expected 0-3`,
      );
  }
}

/** Whether our own addition follows, with the flag for bf16; whatever else follows is not ours to judge. */
function readNarrow(input: BincodeReader): boolean {
  try {
    if (input.remaining === 0 || input.uint("the number of signatures", 0) !== 0) return false;
    if (input.string("an addition to Hello", EXTENSION.length) !== EXTENSION) return false;
    return (input.uint("flags", MAX_U32) & NARROW) !== 0;
  } catch (error) {
    if (error instanceof WireError) return false;
    throw error;
  }
}
