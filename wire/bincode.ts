/**
 * The part of bincode 2's "standard" configuration that the control messages use: little-endian
 * variable-length unsigned integers, strings, lists.
 *
 * Layout (https://github.com/bincode-org/bincode, docs/spec.md): a value below 251 is one byte; else
 * 251 + u16, 252 + u32 or 253 + u64. A string or list is its length, then its items.
 *
 * @module
 */
import { WireError } from "./errors.ts";

const U16 = 251;
const U32 = 252;
const U64 = 253;

/** Collects the bytes of one message. */
export class BincodeWriter {
  readonly #bytes: number[] = [];

  /** Appends an unsigned integer, at most 2^53 - 1, in its shortest form. */
  uint(value: number): this {
    if (value < U16) this.#bytes.push(value);
    else if (value <= 0xffff) this.#fixed(U16, value, 2);
    else if (value <= 0xffff_ffff) this.#fixed(U32, value, 4);
    else this.#fixed(U64, value, 8);
    return this;
  }

  /** Appends a string as UTF-8. */
  string(value: string): this {
    const utf8 = new TextEncoder().encode(value);
    this.uint(utf8.length);
    for (const byte of utf8) this.#bytes.push(byte);
    return this;
  }

  /** The message. */
  finish(): Uint8Array {
    return Uint8Array.from(this.#bytes);
  }

  #fixed(marker: number, value: number, width: number): void {
    this.#bytes.push(marker);
    for (let i = 0, rest = value; i < width; i++, rest = Math.floor(rest / 256)) {
      this.#bytes.push(rest % 256);
    }
  }
}

/** Reads the values of one whole message in turn; every shortage is an error that says where. */
export class BincodeReader {
  readonly #bytes: Uint8Array;
  readonly #view: DataView;
  #at = 0;

  /**
   * @param bytes The whole message.
   * @param what What is being read, for error messages.
   */
  constructor(bytes: Uint8Array, readonly what: string) {
    this.#bytes = bytes;
    this.#view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  }

  /** Bytes not read yet. */
  get remaining(): number {
    return this.#bytes.length - this.#at;
  }

  /**
   * The next unsigned integer.
   *
   * @param field Its name, for error messages.
   * @param max The largest value allowed.
   * @throws {WireError} when bytes are missing, the marker is unknown or the value is too large.
   */
  uint(field: string, max: number): number {
    const first = this.#take(field, 1);
    const marker = this.#view.getUint8(first);
    let value: number;
    if (marker < U16) value = marker;
    else if (marker === U16) value = this.#view.getUint16(this.#take(field, 2), true);
    else if (marker === U32) value = this.#view.getUint32(this.#take(field, 4), true);
    else if (marker === U64) value = Number(this.#view.getBigUint64(this.#take(field, 8), true));
    else {
      throw new WireError(
        "message",
        "connection",
        `reading ${field} of ${this.what}: integer marker ${marker} is not one of 0-253`,
      );
    }
    if (value > max) {
      throw new WireError(
        "message",
        "connection",
        `reading ${field} of ${this.what}: ${value} is above the limit of ${max}`,
      );
    }
    return value;
  }

  /**
   * The next string.
   *
   * @param maxBytes The most bytes of UTF-8 allowed.
   * @throws {WireError} when it is longer, cut short or not UTF-8.
   */
  string(field: string, maxBytes: number): string {
    const length = this.uint(`length of ${field}`, maxBytes);
    const at = this.#take(field, length);
    try {
      const utf8 = Uint8Array.from(this.#bytes.subarray(at, at + length));
      return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(utf8);
    } catch {
      throw new WireError(
        "message",
        "connection",
        `reading ${field} of ${this.what}: its ${length} bytes are not UTF-8`,
      );
    }
  }

  #take(field: string, length: number): number {
    if (length > this.remaining) {
      throw new WireError(
        "truncated",
        "connection",
        `reading ${field} of ${this.what}: ${length} bytes expected, ${this.remaining} left`,
      );
    }
    const at = this.#at;
    this.#at += length;
    return at;
  }
}
