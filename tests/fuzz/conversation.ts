// Whole conversations: what one end says, message by message, and how much it hears in between; and what
// a fuzzer makes of them.
import * as fc from "fast-check";
import type { Tap } from "../../bench/chaos/proxy.ts";
import { encodeControl } from "../../wire/control.ts";
import { encodeAck, encodeHandshake, HANDSHAKE_BYTES } from "../../wire/handshake.ts";
import { tag64 } from "../../wire/mac.ts";
import {
  encodeChannelMagic,
  encodeRecord,
  RECORD_HEADER_BYTES,
  RECORD_SIGNED_BYTES,
} from "../../wire/mux.ts";
import { frameOf, prefixed } from "../cluster/raw.ts";
import { SESSION_SALT as SALT } from "../vectors.ts";
import { type Edit, edit, edited, share } from "./bytes.ts";

/** One message, and how many bytes have come from the other end before it is sent. */
export interface Message {
  readonly bytes: Uint8Array;
  readonly heard: number;
}

/** What one end says. */
export type Conversation = readonly Message[];

/** Whose conversation it is: a rank's with its relay, or a relay's with the controller. */
export type Leg = "rank" | "relay";

/** Takes conversations down as they pass a proxy, by the number of the connection. */
export class Recorder {
  readonly #conversations = new Map<number, Message[]>();
  readonly #heard = new Map<number, number>();

  readonly tap: Tap = (connection, direction, bytes) => {
    const heard = this.#heard.get(connection) ?? 0;
    if (direction === "down") {
      this.#heard.set(connection, heard + bytes.length);
      return;
    }
    const messages = this.#conversations.get(connection) ?? [];
    messages.push({ bytes: bytes.slice(), heard });
    this.#conversations.set(connection, messages);
  };

  /** What the near end of a connection said. */
  of(connection: number): Conversation {
    return this.#conversations.get(connection) ?? [];
  }
}

const ACK = 8;
/** Bytes of a result as a rank and as a relay hear it, for frames of {@link VALUES} values. */
export const VALUES = 4;
const frame = (rank: number) =>
  frameOf([new Array(VALUES).fill(2 ** rank)], { kind: "control", weight: 1 });

/** What a plain rank says in some rounds. */
export function rankConversation(rank: number, worldSize: number, rounds: number): Conversation {
  const sent = prefixed(frame(rank));
  return [
    { bytes: encodeHandshake({ version: 2, rank, worldSize }), heard: 0 },
    ...Array.from({ length: rounds }, (_, i) => ({ bytes: sent, heard: ACK + i * sent.length })),
  ];
}

/** What a plain relay of one rank says in some rounds, and that its rank has left. */
export function relayConversation(host: string, rank: number, rounds: number): Conversation {
  const control = (message: Parameters<typeof encodeControl>[0]) =>
    encodeRecord("control", 0, encodeControl(message), SALT);
  const ack = control({ type: "hello_ack" }).length;
  const sent = encodeRecord("host_frame", 0, frame(rank), SALT);
  return [
    { bytes: encodeChannelMagic(), heard: 0 },
    { bytes: control({ type: "hello", host, ranks: [rank] }), heard: 0 },
    ...Array.from({ length: rounds }, (_, i) => ({ bytes: sent, heard: ack + i * sent.length })),
    { bytes: control({ type: "rank_exit", rank }), heard: ack + rounds * sent.length },
  ];
}

/** What a relay says to a rank in some rounds: it is let in, and results of the rank's own values. */
export function relayAnswers(rank: number, rounds: number): Conversation {
  const sent = prefixed(frame(rank));
  return [
    { bytes: encodeAck(2), heard: HANDSHAKE_BYTES },
    ...Array.from({ length: rounds }, (_, i) => ({
      bytes: sent,
      heard: HANDSHAKE_BYTES + (i + 1) * sent.length,
    })),
  ];
}

/** What a controller says to a relay of one rank in some rounds. */
export function controllerAnswers(host: string, rank: number, rounds: number): Conversation {
  const hello = encodeControl({ type: "hello", host, ranks: [rank] });
  const sent = encodeRecord("broadcast", 0, frame(rank), SALT);
  const greeting = 4 + RECORD_HEADER_BYTES + hello.length;
  return [
    {
      bytes: encodeRecord("control", 0, encodeControl({ type: "hello_ack" }), SALT),
      heard: greeting,
    },
    ...Array.from({ length: rounds }, (_, i) => ({
      bytes: sent,
      heard: greeting + (i + 1) * sent.length,
    })),
    {
      bytes: encodeRecord("control", 0, encodeControl({ type: "declare_dead", rank }), SALT),
      heard: greeting + rounds * sent.length,
    },
  ];
}

/** Gives an edited message correct lengths and tags again, so that it is believed as far as that goes. */
function resealed(leg: Leg, bytes: Uint8Array): Uint8Array {
  const copy = Uint8Array.from(bytes);
  const view = new DataView(copy.buffer);
  const sealFrame = (frame: Uint8Array) => {
    if (frame.length >= 8) frame.set(tag64(SALT, frame.subarray(0, -8)), frame.length - 8);
  };
  if (leg === "rank") {
    if (copy.length < 12 || view.getUint32(0, true) === 0xf10d17c0) return copy;
    view.setUint32(0, copy.length - 4, true);
    sealFrame(copy.subarray(4));
    return copy;
  }
  if (copy.length < RECORD_HEADER_BYTES) return copy;
  const payload = copy.subarray(RECORD_HEADER_BYTES);
  if (copy[8] === 3 || copy[8] === 4) sealFrame(payload);
  view.setUint32(13, payload.length, true);
  copy.set(tag64(SALT, copy.subarray(0, RECORD_SIGNED_BYTES), payload), RECORD_SIGNED_BYTES);
  return copy;
}

/** One change of a conversation; places are shares of its length. */
export type Change =
  | { readonly op: "edit"; readonly at: number; readonly edit: Edit; readonly reseal: boolean }
  | { readonly op: "double"; readonly at: number; readonly hasty: boolean }
  | { readonly op: "swap"; readonly at: number; readonly with: number }
  | { readonly op: "leave out"; readonly at: number }
  | { readonly op: "stop"; readonly at: number }
  | { readonly op: "insert"; readonly at: number; readonly bytes: Uint8Array }
  | { readonly op: "splice"; readonly at: number; readonly other: number; readonly from: number }
  | { readonly op: "long"; readonly at: number; readonly length: number }
  | { readonly op: "nudge"; readonly at: number; readonly from: number; readonly bit: number };

/** One change. */
export const change: fc.Arbitrary<Change> = fc.oneof(
  {
    weight: 5,
    arbitrary: fc.record({
      op: fc.constant("edit" as const),
      at: share,
      edit,
      reseal: fc.boolean(),
    }),
  },
  fc.record({ op: fc.constant("double" as const), at: share, hasty: fc.boolean() }),
  fc.record({ op: fc.constant("swap" as const), at: share, with: share }),
  fc.record({ op: fc.constant("leave out" as const), at: share }),
  fc.record({ op: fc.constant("stop" as const), at: share }),
  fc.record({
    op: fc.constant("insert" as const),
    at: share,
    bytes: fc.uint8Array({ minLength: 1, maxLength: 4096 }),
  }),
  fc.record({ op: fc.constant("splice" as const), at: share, other: share, from: share }),
  // One bit of a frame's values or weight: only its tag tells.
  {
    weight: 3,
    arbitrary: fc.record({
      op: fc.constant("nudge" as const),
      at: share,
      from: fc.noBias(fc.nat(4 * VALUES + 7)),
      bit: fc.nat(7),
    }),
  },
  // A message that announces far more than comes.
  fc.record({
    op: fc.constant("long" as const),
    at: share,
    length: fc.constantFrom(1 << 20, 900 << 20, 0x3fff_ffff, 0x7fff_ffff, 0xffff_fffe),
  }),
);

/** Where the announced length of a message stands. */
const LENGTH_AT: Readonly<Record<Leg, number>> = { rank: 0, relay: 13 };

/**
 * A conversation after some changes.
 *
 * @param others What may be spliced in.
 * @param reseal Whether edited messages may be signed anew.
 */
export function changed(
  leg: Leg,
  conversation: Conversation,
  changes: readonly Change[],
  others: readonly Conversation[],
  reseal: boolean,
): Conversation {
  const messages = [...conversation];
  for (const change of changes) {
    const at = Math.floor(change.at * messages.length);
    const message = messages[at];
    if (message === undefined) break;
    switch (change.op) {
      case "edit": {
        const pieces = conversation.map(({ bytes }) => bytes);
        const bytes = edited(message.bytes, change.edit, pieces);
        messages[at] = {
          ...message,
          bytes: reseal && change.reseal ? resealed(leg, bytes) : bytes,
        };
        break;
      }
      case "double":
        messages.splice(at, 0, change.hasty ? { ...message, heard: 0 } : message);
        break;
      case "swap": {
        const other = Math.floor(change.with * messages.length);
        [messages[at], messages[other]] = [messages[other]!, message];
        break;
      }
      case "leave out":
        messages.splice(at, 1);
        break;
      case "stop":
        messages.length = at;
        break;
      case "insert":
        messages.splice(at, 0, { bytes: change.bytes, heard: message.heard });
        break;
      case "splice": {
        const other = others[Math.floor(change.other * others.length)] ?? conversation;
        messages.splice(
          at,
          messages.length,
          ...other.slice(Math.floor(change.from * other.length)),
        );
        break;
      }
      case "nudge": {
        const bytes = message.bytes.slice();
        // Behind the values stands the tag of 8 bytes.
        const place = bytes.length - 9 - change.from;
        if (place >= 0) bytes[place]! ^= 1 << change.bit;
        messages[at] = { ...message, bytes };
        break;
      }
      case "long": {
        const bytes = message.bytes.slice();
        const place = LENGTH_AT[leg];
        if (bytes.length >= place + 4) {
          new DataView(bytes.buffer).setUint32(place, change.length, true);
        }
        messages[at] = { ...message, bytes };
        break;
      }
    }
  }
  return messages;
}
