/**
 * Records on the relay leg: reading them one after another, and writing them in order.
 *
 * @module
 */
import type { Link } from "../transport/link.ts";
import { TransportError } from "../transport/connection.ts";
import { type ControlMessage, decodeControl, encodeControl } from "../wire/control.ts";
import { WireError } from "../wire/errors.ts";
import { MAX_CONTROL_BYTES } from "../wire/limits.ts";
import { Tag64, tagsEqual } from "../wire/mac.ts";
import {
  decodeRecord,
  decodeRecordHeader,
  encodeRecord,
  encodeRecordStart,
  RECORD_HEADER_BYTES,
  RECORD_SIGNED_BYTES,
  type RecordHeader,
  type RecordKind,
  recordMacError,
} from "../wire/mux.ts";
import { isRefusal } from "../wire/refusal.ts";
import type { FrameHeader } from "../wire/round_frame.ts";
import { receiveFrame } from "./receive.ts";
import { readRefusal } from "./refusals.ts";
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
  readonly #ceiling: number;
  readonly #recordMs: number;
  readonly #start = new Uint8Array(RECORD_HEADER_BYTES);

  /**
   * @param options.ceiling The most bytes of a frame's data.
   * @param options.recordMs How long one record may take from its first byte to its last.
   */
  constructor(
    link: Link,
    options: { salt: Uint8Array; ceiling: number; recordMs: number },
  ) {
    this.#link = link;
    this.#salt = options.salt;
    this.#ceiling = options.ceiling;
    this.#recordMs = options.recordMs;
  }

  /**
   * Waits for the next record, however long that takes, and reads it.
   *
   * @param frameKind The kind of record in which the other end sends frames.
   * @param accept Called when a frame starts to arrive: gives the slot to put it into and the length to
   *   trust, or throws when no frame may come now.
   * @returns The record, or null when the stream ended cleanly before it.
   * @throws {WireError} when what comes is not an authentic record, or may not come now.
   * @throws {TransportError} when the stream breaks, is too slow, or carries a refusal.
   */
  async next(
    frameKind: "host_frame" | "broadcast",
    accept: () => { slot: FrameSlot; trustedLength: number },
  ): Promise<IncomingRecord | null> {
    const link = this.#link;
    const start = this.#start;
    if (!await link.readFully(start.subarray(0, 4), "a record")) return null;
    return await link.within(this.#recordMs, "reading a record", async () => {
      if (isRefusal(start)) {
        const reason = await readRefusal(link, start.subarray(0, 4), this.#salt);
        throw new TransportError("closed", `${link.peer} refused us ${reason}`);
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
      return await this.#readFrame(header, accept());
    });
  }

  async #readSmall(header: RecordHeader): Promise<IncomingRecord> {
    if (header.length > MAX_CONTROL_BYTES) {
      throw new WireError(
        "ceiling",
        "connection",
        `reading a ${header.kind} record from ${this.#link.peer}: ${header.length} bytes announced, ` +
          `at most ${MAX_CONTROL_BYTES} allowed`,
      );
    }
    const record = new Uint8Array(RECORD_HEADER_BYTES + header.length);
    record.set(this.#start);
    await this.#read(record.subarray(RECORD_HEADER_BYTES), `a ${header.kind} record`);
    const { payload } = decodeRecord(record, this.#salt, this.#ceiling);
    return header.kind === "data"
      ? { kind: "data", rank: header.rank }
      : { kind: "control", message: decodeControl(payload) };
  }

  async #readFrame(
    header: RecordHeader,
    { slot, trustedLength }: { slot: FrameSlot; trustedLength: number },
  ): Promise<IncomingRecord> {
    const recordTag = new Tag64(this.#salt).update(this.#start.subarray(0, RECORD_SIGNED_BYTES));
    const frame = await receiveFrame(
      this.#link,
      slot,
      header.length,
      `a ${header.kind} record`,
      { salt: this.#salt, ceiling: this.#ceiling, trustedLength, recordTag },
    );
    if (!tagsEqual(recordTag.digest(), this.#start.subarray(RECORD_SIGNED_BYTES))) {
      throw recordMacError(header);
    }
    return { kind: "frame", header: frame };
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
  readonly #link: Link;
  readonly #salt: Uint8Array;
  #last: Promise<void> = Promise.resolve();

  constructor(link: Link, salt: Uint8Array) {
    this.#link = link;
    this.#salt = salt;
  }

  /**
   * Sends a control message.
   *
   * @throws {TransportError} when the connection breaks.
   */
  control(message: ControlMessage): Promise<void> {
    const record = encodeRecord("control", 0, encodeControl(message), this.#salt);
    return this.raw(record, `a ${message.type} message`);
  }

  /**
   * Sends bytes that are whole records already.
   *
   * @throws {TransportError} when the connection breaks.
   */
  raw(record: Uint8Array, what: string): Promise<void> {
    // A failure reaches whoever handed over the bytes; those behind it fail by themselves.
    const write = () => this.#link.writeFully(record, what);
    const done = this.#last.then(write, write);
    this.#last = done.catch(() => {});
    return done;
  }
}

/**
 * Signs the frame in `slot` and the record around it, which then lies in `slot.record`.
 *
 * @param length Bytes of the frame, all but its tag already written.
 */
export function sealRecord(
  slot: FrameSlot,
  kind: RecordKind,
  length: number,
  salt: Uint8Array,
): void {
  const record = slot.record;
  const { frame } = slot;
  encodeRecordStart(record, { kind, rank: 0, length });
  const frameTag = new Tag64(salt);
  const recordTag = new Tag64(salt).update(record.subarray(0, RECORD_SIGNED_BYTES));
  const end = length - 8;
  const chunk = 256 * 1024;
  for (let at = 0; at < end; at += chunk) {
    const bytes = frame.subarray(at, Math.min(at + chunk, end));
    frameTag.update(bytes);
    recordTag.update(bytes);
  }
  frame.set(frameTag.digest(), end);
  recordTag.update(frame.subarray(end));
  record.set(recordTag.digest(), RECORD_SIGNED_BYTES);
}
