/**
 * 64-bit FNV-1a, the checksum behind the names of gradient blocks. It finds accidents, not attacks.
 *
 * Constants: https://datatracker.ietf.org/doc/html/rfc9923 (64-bit offset basis and prime).
 *
 * @module
 */

const BASIS_HIGH = 0xcbf29ce4;
const BASIS_LOW = 0x84222325;
/** The prime is 2^40 + 0x1b3. */
const PRIME_LOW = 0x1b3;

/** A checksum under construction: bytes go in as they come. */
export class Fnv1a64 {
  #high = BASIS_HIGH | 0;
  #low = BASIS_LOW | 0;

  /** Takes the next bytes. */
  update(bytes: Uint8Array): this {
    let high = this.#high;
    let low = this.#low;
    for (let i = 0; i < bytes.length; i++) {
      low ^= bytes[i]!;
      // Times (2^40 + PRIME_LOW), modulo 2^64: the low word in two 16-bit steps, so that every product
      // stays a small integer.
      const first = (low & 0xffff) * PRIME_LOW;
      const second = (low >>> 16) * PRIME_LOW + (first >>> 16);
      high = (Math.imul(high, PRIME_LOW) + (second >>> 16) + (low << 8)) | 0;
      low = (second << 16) | (first & 0xffff);
    }
    this.#high = high;
    this.#low = low;
    return this;
  }

  /** The checksum of what was taken so far, as 16 lower-case hex digits. */
  hex(): string {
    const word = (value: number) => (value >>> 0).toString(16).padStart(8, "0");
    return word(this.#high) + word(this.#low);
  }
}
