/**
 * Records on the relay leg: reading them one after another, and writing them in order.
 *
 * @module
 */
import type { Link } from "../transport/link.ts";
import { TransportError } from "../transport/connection.ts";
import { type ControlMessage, decodeControl, encodeControl } from "../wire/control.ts";
import { WireError } from "../wire/errors.ts";
import { MAX_CONTROL_BYTES, TAG_BYTES } from "../wire/limits.ts";
import { tag64, tagsEqual } from "../wire/mac.ts";
import {
  decodeRecord,
  decodeRecordHeader,
  encodeRecord,
  encodeRecordStart,
  RECORD_HEADER_BYTES,
  RECORD_SIGNED_BYTES,
  type RecordHeader,
  recordMacError,
} from "../wire/mux.ts";
import { isRefusal } from "../wire/refusal.ts";
import type { FrameHeader } from "../wire/round_frame.ts";
import { frameRecordTag, type Seals } from "../wire/seal.ts";
import type { Tagger, TagLane } from "../workers/tagger.ts";
import { type Arriving, receiveFrame } from "./receive.ts";
import { readRefusal } from "./refusals.ts";
import { SealedPen } from "./seals.ts";
import type { FrameSlot } from "./slot.ts";

/** A record that was read and verified. */
export type IncomingRecord =
  | { kind: "control"; message: ControlMessage }
  | { kind: "frame"; header: FrameHeader }
  | { kind: "data"; rank: number };

/** Reads the records of one channel. */
export class RecordReader {
  readonly #link: Link;
  readonly #salt: Uint8Array;
  readonly #tagger: Tagger;
  readonly #ceiling: number;
  readonly #recordMs: number;
  /** The most bytes of a record without a frame: fewer until the first one has shown who speaks. */
  #smallBytes: number;
  #seals: Seals | undefined;
  readonly #start = new Uint8Array(RECORD_HEADER_BYTES);

  /**
   * @param options.ceiling The most bytes of a frame's data.
   * @param options.helloBytes The most bytes of the first record; the limit of all others when left out.
   * @param options.recordMs How long one record may take from its first byte to its last.
   */
  constructor(
    link: Link,
    options: {
      salt: Uint8Array;
      tagger: Tagger;
      ceiling: number;
      helloBytes?: number;
      recordMs: number;
    },
  ) {
    this.#link = link;
    this.#salt = options.salt;
    this.#tagger = options.tagger;
    this.#ceiling = options.ceiling;
    this.#recordMs = options.recordMs;
    this.#smallBytes = options.helloBytes ?? MAX_CONTROL_BYTES;
  }

  /** From here on every record must have its seal in the place of its tag. */
  expectSeals(seals: Seals): void {
    this.#seals = seals;
  }

  /**
   * Waits for the next record, however long that takes, and reads it.
   *
   * @param frameKind The kind of record in which the other end sends frames.
   * @param accept Called when a frame starts to arrive: gives the slot to put it into, or throws when
   *   no frame may come now.
   * @param arriving Told of a frame that arrives, again and again, before it is verified.
   * @returns The record, or null when the stream ended cleanly before it.
   * @throws {WireError} when what comes is not an authentic record, or may not come now.
   * @throws {TransportError} when the stream breaks, is too slow, or carries a refusal.
   */
  async next(
    frameKind: "host_frame" | "broadcast",
    accept: () => FrameSlot,
    arriving?: Arriving,
  ): Promise<IncomingRecord | null> {
    const link = this.#link;
    const start = this.#start;
    if (!await link.readFully(start.subarray(0, 4), "a record")) return null;
    return await link.within(this.#recordMs, "reading a record", async () => {
      if (isRefusal(start)) {
        const reason = await readRefusal(link, start.subarray(0, 4), this.#salt);
        throw new TransportError("refused", `${link.peer} refused us ${reason}`);
      }
      await this.#read(start.subarray(4), "a record's header");
      const header = decodeRecordHeader(start, this.#ceiling);
      if (header.kind === "control" || header.kind === "data") {
        return await this.#readSmall(header);
      }
      if (header.kind !== frameKind) {
        throw new WireError(
          "kind",
          "connection",
          `reading a record from ${link.peer}: a ${header.kind} came, which only goes the other way`,
        );
      }
      return await this.#readFrame(header, accept(), arriving);
    });
  }

  async #readSmall(header: RecordHeader): Promise<IncomingRecord> {
    if (header.length > this.#smallBytes) {
      throw new WireError(
        "ceiling",
        "connection",
        `reading a ${header.kind} record from ${this.#link.peer}: ${header.length} bytes announced, ` +
          `at most ${this.#smallBytes} allowed`,
      );
    }
    const record = new Uint8Array(RECORD_HEADER_BYTES + header.length);
    record.set(this.#start);
    await this.#read(record.subarray(RECORD_HEADER_BYTES), `a ${header.kind} record`);
    if (this.#seals !== undefined) {
      const signed = record.subarray(0, RECORD_SIGNED_BYTES);
      const tag = tag64(this.#salt, signed, record.subarray(RECORD_HEADER_BYTES));
      this.#seals.expect(tag, this.#start.subarray(RECORD_SIGNED_BYTES));
      record.set(tag, RECORD_SIGNED_BYTES);
    }
    const { payload } = decodeRecord(record, this.#salt, this.#ceiling);
    this.#smallBytes = MAX_CONTROL_BYTES;
    return header.kind === "data"
      ? { kind: "data", rank: header.rank }
      : { kind: "control", message: decodeControl(payload) };
  }

  async #readFrame(
    header: RecordHeader,
    slot: FrameSlot,
    arriving: Arriving | undefined,
  ): Promise<IncomingRecord> {
    const link = this.#link;
    const what = `a ${header.kind} record`;
    const signed = this.#start.subarray(0, RECORD_SIGNED_BYTES);
    const came = this.#start.subarray(RECORD_SIGNED_BYTES);
    const options = { tagger: this.#tagger, ceiling: this.#ceiling, ...arriving && { arriving } };
    if (this.#seals !== undefined) {
      const frame = await receiveFrame(link, slot, header.length, what, options);
      const frameTag = slot.frame.subarray(-TAG_BYTES);
      this.#seals.expect(frameRecordTag(this.#salt, signed, frameTag), came);
      return { kind: "frame", header: frame };
    }
    const recordTag = this.#tagger.open(header.length);
    recordTag.update(signed);
    // A broadcast goes on verbatim to ranks that verify its frame: here its record's tag is enough.
    const tagger = header.kind === "broadcast" ? undefined : this.#tagger;
    try {
      const tags = { ...options, tagger, recordTag };
      const frame = await receiveFrame(link, slot, header.length, what, tags);
      if (!tagsEqual(await recordTag.digest(), came)) throw recordMacError(header);
      return { kind: "frame", header: frame };
    } finally {
      recordTag.abandon();
    }
  }

  async #read(into: Uint8Array, what: string): Promise<void> {
    if (into.length > 0 && !await this.#link.readFully(into, what)) {
      throw new TransportError(
        "closed",
        `reading ${what} from ${this.#link.peer}: the stream ended inside a record`,
      );
    }
  }
}

/** Writes the records of one channel, each whole, in the order in which they were handed over. */
export class RecordWriter {
  readonly #pen: SealedPen;
  readonly #salt: Uint8Array;
  #seals: Seals | undefined;
  #last: Promise<void> = Promise.resolve();

  constructor(link: Link, salt: Uint8Array) {
    this.#pen = new SealedPen(link);
    this.#salt = salt;
  }

  /** Whether records get seals in the place of their tags. */
  get sealed(): boolean {
    return this.#seals !== undefined;
  }

  /** From here on every record gets its seal in the place of its tag. */
  addSeals(seals: Seals): void {
    this.#seals = seals;
  }

  /**
   * Sends a control message.
   *
   * @throws {TransportError} when the connection breaks.
   */
  control(message: ControlMessage): Promise<void> {
    const record = encodeRecord("control", 0, encodeControl(message), this.#salt);
    const tag = record.subarray(RECORD_SIGNED_BYTES, RECORD_HEADER_BYTES);
    return this.#write(record, tag, `a ${message.type} message`);
  }

  /**
   * Sends a record that carries a frame.
   *
   * @param record The whole record; unchanged until this has settled, but for its tag, which is filled in
   *   where this channel needs it and {@link RecordSealer} left it out.
   * @throws {TransportError} when the connection breaks.
   */
  frame(record: Uint8Array, what: string): Promise<void> {
    const signed = record.subarray(0, RECORD_SIGNED_BYTES);
    let tag = record.subarray(RECORD_SIGNED_BYTES, RECORD_HEADER_BYTES);
    if (this.#seals !== undefined) {
      tag = frameRecordTag(this.#salt, signed, record.subarray(-TAG_BYTES));
    } else if (tag.every((byte) => byte === 0)) {
      tag.set(tag64(this.#salt, signed, record.subarray(RECORD_HEADER_BYTES)));
    }
    return this.#write(record, tag, what);
  }

  /** @param tag The tag of the record, of which a seal is made where the channel has seals. */
  #write(record: Uint8Array, tag: Uint8Array, what: string): Promise<void> {
    // A failure reaches whoever handed over the bytes; those behind it fail by themselves.
    const seal = this.#seals?.next(tag);
    const write = () => this.#pen.write(record, RECORD_SIGNED_BYTES, seal, what);
    const done = this.#last.then(write, write);
    this.#last = done.catch(() => {});
    return done;
  }
}

/** How a frame leaves: in which record, and signed by whom. */
export interface RecordEnd {
  kind: "host_frame" | "broadcast";
  tagger: Tagger;
  /**
   * Whether a channel without seals takes the record. Elsewhere the record's own tag is left out: it is
   * all zeros.
   */
  plain: boolean;
}

/** Signs a frame, and the record around it where that is needed, while the frame is being written. */
export class RecordSealer {
  readonly #slot: FrameSlot;
  readonly #frameTag: TagLane;
  readonly #recordTag: TagLane | undefined;
  readonly #signedEnd: number;
  #done = 0;

  /**
   * Writes the record's header and starts the tags.
   *
   * @param slot Where the frame comes to lie; its length is the one last reserved.
   */
  constructor(slot: FrameSlot, { kind, tagger, plain }: RecordEnd) {
    const { frame, record } = slot;
    this.#slot = slot;
    this.#signedEnd = frame.length - TAG_BYTES;
    encodeRecordStart(record, { kind, rank: 0, length: frame.length });
    record.fill(0, RECORD_SIGNED_BYTES, RECORD_HEADER_BYTES);
    this.#frameTag = tagger.open(frame.length);
    if (!plain) return;
    this.#recordTag = tagger.open(frame.length);
    this.#recordTag.update(record.subarray(0, RECORD_SIGNED_BYTES));
  }

  /** Says that the frame is final up to `end`, which grows from call to call. */
  advance(end: number): void {
    const bytes = this.#slot.frame.subarray(this.#done, end);
    this.#frameTag.update(bytes);
    this.#recordTag?.update(bytes);
    this.#done = end;
  }

  /** Gives the tags up. */
  abandon(): void {
    this.#frameTag.abandon();
    this.#recordTag?.abandon();
  }

  /** Ends the tags: the whole record then lies in `slot.record`. */
  async finish(): Promise<void> {
    this.advance(this.#signedEnd);
    const { frame, record } = this.#slot;
    frame.set(await this.#frameTag.digest(), this.#signedEnd);
    if (this.#recordTag === undefined) return;
    this.#recordTag.update(frame.subarray(this.#signedEnd));
    record.set(await this.#recordTag.digest(), RECORD_SIGNED_BYTES);
  }
}
