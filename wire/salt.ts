/**
 * Whether a salt could be guessed: the tags are worth no more than the salt is.
 *
 * @module
 */

/** Steps between neighbours that may be equal before a salt counts as a sequence. */
const EQUAL_STEPS = 8;
/** The fewest different bytes of a salt. */
const LEAST_DIFFERENT = 7;
/** The longest period that is looked for. */
const LONGEST_PERIOD = 8;
/** Lower-case or upper-case letters that make a text of printable characters. */
const LETTERS_OF_TEXT = 14;

/**
 * Why a salt was not drawn at random; undefined where nothing speaks against it. Of salts that were, all
 * tests together refuse fewer than one in 2^40:
 *
 *     most steps between neighbours are equal    256 x C(15, 8) x 2^-64     2^-43
 *     it repeats itself after 8 bytes or fewer   2^-64 for a period of 8    2^-64
 *     6 different bytes or fewer                 C(256, 6) x (6/256)^16     2^-48
 *     text: a-z, 0-9, space, _ and - alone       (39/256)^16                2^-43, twice
 *     text: printable, with 14 letters of a case C(16, 14) (26/256)^14 ...  2^-43, twice
 *
 * @param salt 16 bytes.
 */
export function saltWeakness(salt: Uint8Array): string | undefined {
  const steps = new Map<number, number>();
  for (let i = 1; i < salt.length; i++) {
    const step = (salt[i]! - salt[i - 1]!) & 0xff;
    steps.set(step, (steps.get(step) ?? 0) + 1);
  }
  if (Math.max(...steps.values()) >= EQUAL_STEPS) return "its bytes count or repeat";
  for (let period = 2; period <= LONGEST_PERIOD; period++) {
    if (salt.every((byte, i) => byte === salt[i % period])) {
      return `it repeats itself after ${period} bytes`;
    }
  }
  const different = new Set(salt).size;
  if (different < LEAST_DIFFERENT) return `it has no more than ${different} different bytes`;
  const text = new TextDecoder("latin1").decode(salt);
  if (/^[a-z0-9 _-]+$/.test(text) || /^[A-Z0-9 _-]+$/.test(text)) return "its bytes are text";
  const letters = Math.max(text.replace(/[^a-z]/g, "").length, text.replace(/[^A-Z]/g, "").length);
  if (/^[ -~]+$/.test(text) && letters >= LETTERS_OF_TEXT) return "its bytes are text";
  return undefined;
}
