/**
 * bincode 1.3's default layout, as DWE uses it: little-endian integers of fixed width, strings and
 * lists as a u64 length and their items, an option as one byte 0 or 1 and the value.
 *
 * Layout: https://docs.rs/bincode/1.3.3/bincode/config/index.html
 *
 * @module
 */
import { invariant } from "./errors.ts";

/** Writes values one after another into bytes that are just large enough. */
export class FixedWriter {
  readonly #bytes: Uint8Array<ArrayBuffer>;
  readonly #view: DataView;
  #at = 0;

  /** Takes the bytes that all values will need together. */
  constructor(length: number) {
    this.#bytes = new Uint8Array(length);
    this.#view = new DataView(this.#bytes.buffer);
  }

  /** Appends an unsigned 64-bit integer. */
  u64(value: number | bigint): this {
    this.#view.setBigUint64(this.#at, BigInt(value), true);
    this.#at += 8;
    return this;
  }

  /** Appends one byte. */
  u8(value: number): this {
    this.#view.setUint8(this.#at, value);
    this.#at += 1;
    return this;
  }

  /** Appends bytes as they are. */
  raw(bytes: Uint8Array): this {
    this.#bytes.set(bytes, this.#at);
    this.#at += bytes.length;
    return this;
  }

  /** Appends the length of a string or list of bytes, and the bytes. */
  counted(bytes: Uint8Array): this {
    return this.u64(bytes.length).raw(bytes);
  }

  /** What was written so far, as a view. */
  get written(): Uint8Array<ArrayBuffer> {
    return this.#bytes.subarray(0, this.#at);
  }

  /** The bytes, all of them written. */
  finish(): Uint8Array<ArrayBuffer> {
    invariant(
      this.#at === this.#bytes.length,
      `${this.#at} of ${this.#bytes.length} bytes written`,
    );
    return this.#bytes;
  }
}

/** What a reader tells its caller about bytes that it cannot read. */
export type FixedFault = "truncated" | "range" | "text" | "option";

/** Reads values one after another; counts are held against the bytes that are there. */
export class FixedReader {
  readonly #bytes: Uint8Array;
  readonly #view: DataView;
  readonly #fail: (fault: FixedFault, message: string) => Error;
  #at = 0;

  /**
   * Starts at the front of a message.
   *
   * @param bytes The whole message.
   * @param fail Makes the error to throw from the kind of fault and its description.
   */
  constructor(bytes: Uint8Array, fail: (fault: FixedFault, message: string) => Error) {
    this.#bytes = bytes;
    this.#view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    this.#fail = fail;
  }

  /** Offset of the next byte. */
  get at(): number {
    return this.#at;
  }

  /** Bytes not read yet. */
  get remaining(): number {
    return this.#bytes.length - this.#at;
  }

  /** The next u64, exactly. */
  u64(field: string): bigint {
    return this.#view.getBigUint64(this.#take(field, 8), true);
  }

  /** The next u64 as a number, refused above 2^53 - 1. */
  uint(field: string): number {
    const value = this.u64(field);
    if (value > BigInt(Number.MAX_SAFE_INTEGER)) {
      throw this.#fail("range", `${field} is ${value}, more than 2^53 - 1`);
    }
    return Number(value);
  }

  /** The next byte, which must be 0 or 1. */
  flag(field: string): boolean {
    const value = this.#view.getUint8(this.#take(field, 1));
    if (value > 1) throw this.#fail("option", `${field} starts with ${value}, not with 0 or 1`);
    return value === 1;
  }

  /** The next u64 as a count of items, refused when so many items of `itemBytes` cannot follow. */
  count(field: string, itemBytes: number): number {
    const count = this.u64(field);
    if (count > BigInt(Math.floor(this.remaining / itemBytes))) {
      throw this.#fail(
        "truncated",
        `${field} is ${count}, at least ${itemBytes} bytes each, but ${this.remaining} bytes are left`,
      );
    }
    return Number(count);
  }

  /** The next bytes, as a view. */
  raw(field: string, length: number): Uint8Array {
    const at = this.#take(field, length);
    return this.#bytes.subarray(at, at + length);
  }

  /** The next string. */
  string(field: string): string {
    const utf8 = this.raw(field, this.count(`the length of ${field}`, 1));
    try {
      return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(utf8);
    } catch {
      throw this.#fail("text", `the ${utf8.length} bytes of ${field} are not UTF-8`);
    }
  }

  #take(field: string, length: number): number {
    if (length > this.remaining) {
      throw this.#fail(
        "truncated",
        `${field} takes ${length} bytes, but ${this.remaining} are left`,
      );
    }
    const at = this.#at;
    this.#at += length;
    return at;
  }
}
