// What the fuzzers do to bytes. Edits are drawn by fast-check, so that a seed replays them and a failing
// list of them shrinks.
import * as fc from "fast-check";

/** Words that decoders trip over: lengths, counts, marks of variable integers. */
const WORDS = [
  ...[0, 1, 7, 8, 0xfa, 0xfb, 0xfc, 0xfd, 0xff, 0x100, 0xffff, 0x1_0000, 0x1_0001],
  ...[0x40_0000, 0x3fff_ffff, 0x4000_0000, 0x7fff_ffff, 0x8000_0000, 0xffff_fffe, 0xffff_ffff],
];

/** One change. Places are shares of the length, so that a list of edits fits bytes of any length. */
export type Edit =
  | { readonly op: "flip"; readonly at: number; readonly bit: number }
  | { readonly op: "set"; readonly at: number; readonly byte: number }
  | { readonly op: "cut"; readonly at: number }
  | { readonly op: "drop"; readonly at: number; readonly share: number }
  | { readonly op: "double"; readonly at: number; readonly share: number }
  | { readonly op: "insert"; readonly at: number; readonly bytes: Uint8Array }
  /** Writes a word at a place that a field can have, little-endian, 4 or 8 bytes wide. */
  | { readonly op: "word"; readonly at: number; readonly word: number; readonly wide: boolean }
  /** Goes on with the rest of other bytes. */
  | { readonly op: "splice"; readonly at: number; readonly other: number; readonly from: number };

/** A share from 0 to below 1, every part as likely as the others: doubles of their own lie near 0. */
export const share: fc.Arbitrary<number> = fc.noBias(fc.nat(2 ** 20 - 1)).map((n) => n / 2 ** 20);

/** One edit. */
export const edit: fc.Arbitrary<Edit> = fc.oneof(
  fc.record({ op: fc.constant("flip" as const), at: share, bit: fc.nat(7) }),
  fc.record({ op: fc.constant("set" as const), at: share, byte: fc.nat(255) }),
  fc.record({ op: fc.constant("cut" as const), at: share }),
  fc.record({ op: fc.constant("drop" as const), at: share, share }),
  fc.record({ op: fc.constant("double" as const), at: share, share }),
  fc.record({ op: fc.constant("insert" as const), at: share, bytes: fc.uint8Array() }),
  fc.record({
    op: fc.constant("word" as const),
    at: share,
    word: fc.constantFrom(...WORDS),
    wide: fc.boolean(),
  }),
  fc.record({ op: fc.constant("splice" as const), at: share, other: share, from: share }),
);

function concat(...parts: Uint8Array[]): Uint8Array<ArrayBuffer> {
  const all = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    all.set(part, at);
    at += part.length;
  }
  return all;
}

/** The bytes after one edit; the given ones stay as they are. */
export function edited(
  bytes: Uint8Array,
  edit: Edit,
  others: readonly Uint8Array[],
): Uint8Array<ArrayBuffer> {
  const at = Math.floor(edit.at * bytes.length);
  const copy = Uint8Array.from(bytes);
  switch (edit.op) {
    case "flip":
      if (copy.length > 0) copy[at]! ^= 1 << edit.bit;
      return copy;
    case "set":
      if (copy.length > 0) copy[at] = edit.byte;
      return copy;
    case "cut":
      return copy.slice(0, at);
    case "drop":
      return concat(copy.subarray(0, at), copy.subarray(at + 1 + 16 * edit.share));
    case "double": {
      const end = at + 1 + Math.floor(edit.share * 64);
      return concat(copy.subarray(0, end), copy.subarray(at));
    }
    case "insert":
      return concat(copy.subarray(0, at), edit.bytes, copy.subarray(at));
    case "word": {
      const word = new Uint8Array(edit.wide ? 8 : 4);
      new DataView(word.buffer).setUint32(0, edit.word, true);
      copy.set(word.subarray(0, copy.length - at), at);
      return copy;
    }
    case "splice": {
      const other = others[Math.floor(edit.other * others.length)] ?? copy;
      return concat(copy.subarray(0, at), other.subarray(Math.floor(edit.from * other.length)));
    }
  }
}

/** The bytes after several edits, at most 64 KiB of them. */
export function editedAll(
  bytes: Uint8Array,
  edits: readonly Edit[],
  others: readonly Uint8Array[],
): Uint8Array<ArrayBuffer> {
  const one = (before: Uint8Array, edit: Edit) => edited(before, edit, others).slice(0, 65_536);
  return edits.reduce(one, Uint8Array.from(bytes));
}

/** Every word at every place, one after another: what an announced length can do at most. */
export function* withWords(bytes: Uint8Array): Generator<Uint8Array<ArrayBuffer>> {
  for (let at = 0; at < bytes.length; at++) {
    for (const word of [0x7fff_ffff, 0x3fff_ffff, 0xffff_fffe]) {
      yield edited(bytes, { op: "word", at: (at + 0.5) / bytes.length, word, wide: false }, []);
    }
  }
}
