/**
 * Receiving one frame: from the socket straight into its slot, parsed and hashed while the bytes are
 * hot. Nothing of it may be used before this has returned.
 *
 * @module
 */
import type { Link } from "../transport/link.ts";
import { Breather } from "../transport/breather.ts";
import { expectWhole, type FrameHeader, frameMacError, FrameParser } from "../wire/round_frame.ts";
import { WireError } from "../wire/errors.ts";
import { TAG_BYTES } from "../wire/limits.ts";
import { tagsEqual } from "../wire/mac.ts";
import type { Seals } from "../wire/seal.ts";
import type { Tagger, TagLane } from "../workers/tagger.ts";
import { TransportError } from "../transport/connection.ts";
import type { FrameSlot } from "./slot.ts";

/** Most bytes asked of the socket at once: large reads wake the loop less often. */
const READ_BYTES = 4 * 1024 ** 2;

/**
 * Told of a frame's bytes before they are verified, once its headers are read and after every read: what
 * is made of them must not leave the process before the frame was verified.
 */
export type Arriving = (
  bytes: Uint8Array<ArrayBufferLike>,
  header: FrameHeader,
  received: number,
) => void;

/** What a receiver must know of its session. */
export interface ReceiveOptions {
  /** Computes the frame's tag; left out where the record around the frame vouches for it. */
  tagger: Tagger | undefined;
  /** The most bytes of a frame's data. */
  ceiling: number;
  /** Where the connection is sealed: the seals that stand in the place of frames' tags. */
  seals?: Seals | undefined;
  /** The tag of the record around the frame, which takes the frame's bytes too. */
  recordTag?: TagLane;
  /** Told of the bytes as they come. */
  arriving?: Arriving;
}

/**
 * Receives a frame of `length` bytes into `slot`.
 *
 * @param what What is being read, for errors: "the frame of rank 3".
 * @returns Its header; the frame's own tag was verified if a tagger was given, the record's was only
 *   computed.
 * @throws {WireError} when the bytes are not one authentic frame of that length.
 * @throws {TransportError} when the stream ends or breaks before the last byte.
 */
export async function receiveFrame(
  link: Link,
  slot: FrameSlot,
  length: number,
  what: string,
  options: ReceiveOptions,
): Promise<FrameHeader> {
  const tag = options.tagger?.open(length);
  try {
    return await receive(link, slot, length, what, options, tag);
  } catch (error) {
    // Whatever room was announced, a peer that fails leaves none of it taken.
    slot.release();
    throw error;
  } finally {
    tag?.abandon();
  }
}

async function receive(
  link: Link,
  slot: FrameSlot,
  length: number,
  what: string,
  options: ReceiveOptions,
  tag: TagLane | undefined,
): Promise<FrameHeader> {
  const parser = new FrameParser(options.ceiling);
  const breather = new Breather();
  const signedEnd = Math.max(length - TAG_BYTES, 0);
  let header: FrameHeader | undefined;
  let received = 0;
  makeRoom(slot, length, what);
  const { frame } = slot;
  while (received < length) {
    const until = Math.min(received + READ_BYTES, length);
    const count = await link.readSome(frame.subarray(received, until), what);
    if (count === null) {
      throw new TransportError(
        "closed",
        `reading ${what} from ${link.peer}: the stream ended after ${received} of ${length} bytes`,
      );
    }
    const before = received;
    received += count;
    if (header === undefined) {
      header = parser.advance(frame, received);
      if (header !== undefined) expectWhole(header, length);
    }
    if (before < signedEnd) tag?.update(frame.subarray(before, Math.min(received, signedEnd)));
    options.recordTag?.update(frame.subarray(before, received));
    if (header !== undefined) options.arriving?.(frame, header, received);
    const turn = breather.breathe();
    if (turn !== undefined) await turn;
  }
  expectWhole(header, length);
  if (tag === undefined) return header;
  const own = await tag.digest();
  const { seals } = options;
  if (seals !== undefined) {
    seals.expect(own, frame.subarray(signedEnd));
    frame.set(own, signedEnd);
  } else if (!tagsEqual(own, frame.subarray(signedEnd))) throw frameMacError();
  return header;
}

/**
 * Makes room. What is taken is address space: a page is memory only once bytes have arrived in it, so
 * that an announced length costs nothing until it is true. A peer whose frame this process cannot hold
 * loses its connection, not everybody.
 */
function makeRoom(slot: FrameSlot, length: number, what: string): void {
  try {
    slot.reserve(length);
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
    throw new WireError("ceiling", "connection", `making room for ${what}: ${error.message}`);
  }
}
