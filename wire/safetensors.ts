/**
 * The header of a safetensors file, in which checkpoints are kept.
 *
 *     0      u64 N, the length of the JSON text; little-endian
 *     8      N bytes of JSON, UTF-8, from "{" on; spaces may follow it
 *     8 + N  data: every tensor's values, row-major, little-endian, without gaps
 *
 * The JSON is one object: by each tensor's name an object of `dtype`, `shape` and `data_offsets`
 * ([begin, end] from the start of the data), and under `__metadata__` text by text. Format: safetensors,
 * github.com/huggingface/safetensors, README. Only F32 and BF16 are read and written here.
 *
 * @module
 */
import { elementCount } from "./round_frame.ts";

/** Bytes of the length in front of the JSON. */
export const SAFETENSORS_PREFIX_BYTES = 8;
/** Most bytes of JSON: what the format's own reader takes. */
export const SAFETENSORS_MAX_HEADER_BYTES = 100_000_000;

/** Data starts at a multiple of this, as the format's own writer has it. */
const ALIGNMENT = 8;
const METADATA = "__metadata__";
const WIDTHS: Readonly<Record<SafetensorsDtype, number>> = { F32: 4, BF16: 2 };

/** What a tensor's values are. */
export type SafetensorsDtype = "F32" | "BF16";

/** Why a file was refused. */
export type SafetensorsErrorCode =
  /** It is shorter than its header says. */
  | "Truncated"
  /** It is longer than its header says. */
  | "Trailing"
  /** Its header is longer than allowed. */
  | "Oversized"
  /** Its header is not the JSON that the format wants. */
  | "Malformed"
  /** A tensor is neither F32 nor BF16. */
  | "Dtype"
  /** A shape and its offsets, or the offsets of two tensors, do not fit together. */
  | "Offsets";

/** A file that is not what the format promises. */
export class SafetensorsError extends Error {
  /** "SafetensorsError". */
  override readonly name = "SafetensorsError";
  /** The cause. */
  readonly code: SafetensorsErrorCode;

  /** Builds the error from its cause and from what was being done, expected, and found. */
  constructor(code: SafetensorsErrorCode, message: string) {
    super(message);
    this.code = code;
  }
}

/** A tensor to write. */
export interface SafetensorsTensor {
  /** Its name, unique in the file. */
  readonly name: string;
  /** What its values are. */
  readonly dtype: SafetensorsDtype;
  /** The dims; empty for a scalar. */
  readonly shape: readonly number[];
}

/** A tensor of a file, and where its data lies. */
export interface SafetensorsEntry extends SafetensorsTensor {
  /** Offset of its data from the start of the file, in bytes. */
  readonly at: number;
  /** Bytes of its data. */
  readonly nbytes: number;
}

/** Everything of a file but its numbers. */
export interface SafetensorsHeader {
  /** The tensors in the order of their data; empty ones at one place in the order of the header. */
  readonly tensors: readonly SafetensorsEntry[];
  /** What else the file says, text by text. */
  readonly metadata: Readonly<Record<string, string>>;
  /** Where the data starts, in bytes from the start of the file. */
  readonly dataAt: number;
  /** Bytes of the whole file. */
  readonly fileBytes: number;
}

/**
 * Lays out a file: tensors in the order given, `__metadata__` in front, so that its first value lies at a
 * place that does not depend on the tensors.
 *
 * @returns The header, and the bytes in front of the data.
 * @throws {RangeError} when a name is used twice or is not one, or a shape is not countable.
 * @throws {SafetensorsError} Oversized, when the header would be.
 */
export function encodeSafetensorsHeader(
  tensors: readonly SafetensorsTensor[],
  metadata: Readonly<Record<string, string>> = {},
): { bytes: Uint8Array<ArrayBuffer>; header: SafetensorsHeader } {
  const names = new Set<string>();
  const parts = Object.keys(metadata).length > 0
    ? [`${JSON.stringify(METADATA)}:${JSON.stringify(metadata)}`]
    : [];
  let end = 0;
  const spans = tensors.map(({ name, dtype, shape }) => {
    if (name === METADATA || names.has(name)) {
      throw new RangeError(
        `laying out a safetensors file: ${JSON.stringify(name)} ${
          name === METADATA ? "is not a tensor's name" : "names two tensors"
        }`,
      );
    }
    names.add(name);
    const at = end;
    const nbytes = elementCount(shape) * WIDTHS[dtype];
    end += nbytes;
    if (!Number.isSafeInteger(end) || !shape.every(isCount)) {
      throw new RangeError(
        `laying out a safetensors file: tensor ${JSON.stringify(name)} has the shape ` +
          `[${shape.join(", ")}], expected dims that are whole numbers of countable size`,
      );
    }
    // Joined by hand: an object would put names that are numbers first.
    parts.push(
      `${JSON.stringify(name)}:${JSON.stringify({ dtype, shape, data_offsets: [at, end] })}`,
    );
    return { at, nbytes };
  });
  const json = new TextEncoder().encode(`{${parts.join(",")}}`);
  const length = Math.ceil(json.length / ALIGNMENT) * ALIGNMENT;
  if (length > SAFETENSORS_MAX_HEADER_BYTES) throw oversized("laying out", length);
  const dataAt = SAFETENSORS_PREFIX_BYTES + length;
  const bytes = new Uint8Array(dataAt).fill(0x20);
  new DataView(bytes.buffer).setBigUint64(0, BigInt(length), true);
  bytes.set(json, SAFETENSORS_PREFIX_BYTES);
  const header = {
    tensors: tensors.map(({ name, dtype, shape }, i) => {
      const { at, nbytes } = spans[i]!;
      return { name, dtype, shape: [...shape], at: dataAt + at, nbytes };
    }),
    metadata: { ...metadata },
    dataAt,
    fileBytes: dataAt + end,
  };
  return { bytes, header };
}

/**
 * Reads how long the JSON is, before anything is allocated for it.
 *
 * @param prefix The file's first 8 bytes.
 * @param fileBytes The size of the whole file.
 * @throws {SafetensorsError} Truncated, Oversized.
 */
export function decodeSafetensorsPrefix(prefix: Uint8Array, fileBytes: number): number {
  if (prefix.length < SAFETENSORS_PREFIX_BYTES) {
    throw new SafetensorsError(
      "Truncated",
      `reading a safetensors file: it has ${prefix.length} bytes, expected at least 8`,
    );
  }
  const view = new DataView(prefix.buffer, prefix.byteOffset, prefix.length);
  const length = Number(view.getBigUint64(0, true));
  if (length > SAFETENSORS_MAX_HEADER_BYTES) throw oversized("reading", length);
  if (length > fileBytes - SAFETENSORS_PREFIX_BYTES) {
    throw new SafetensorsError(
      "Truncated",
      `reading a safetensors file: its header has ${length} bytes, the whole file ${fileBytes}`,
    );
  }
  return length;
}

/**
 * Reads the JSON.
 *
 * @param json As many bytes as {@link decodeSafetensorsPrefix} said.
 * @param fileBytes The size of the whole file.
 * @throws {SafetensorsError} naming the tensor.
 */
export function decodeSafetensorsHeader(json: Uint8Array, fileBytes: number): SafetensorsHeader {
  const root = parse(json);
  const dataAt = SAFETENSORS_PREFIX_BYTES + json.length;
  const tensors: SafetensorsEntry[] = [];
  let metadata: Readonly<Record<string, string>> = {};
  for (const [name, value] of Object.entries(root)) {
    if (name === METADATA) metadata = readMetadata(value);
    else tensors.push(readTensor(name, value, dataAt));
  }
  // The sort is stable, which keeps empty tensors in the order of the header.
  tensors.sort((a, b) => a.at - b.at || a.nbytes - b.nbytes);
  let end = dataAt;
  for (const { name, at, nbytes } of tensors) {
    if (at !== end) {
      throw new SafetensorsError(
        "Offsets",
        `reading a safetensors file: the data of tensor ${show(name)} starts at ${at - dataAt}, ` +
          `expected ${end - dataAt}, where that of the tensor before it ends`,
      );
    }
    end += nbytes;
  }
  if (end !== fileBytes) {
    const short = fileBytes < end;
    throw new SafetensorsError(
      short ? "Truncated" : "Trailing",
      `reading a safetensors file: it has ${fileBytes} bytes, its header needs ${end}`,
    );
  }
  return { tensors, metadata, dataAt, fileBytes };
}

function parse(json: Uint8Array): Record<string, unknown> {
  const fail = (why: string) =>
    new SafetensorsError("Malformed", `reading a safetensors file: its header ${why}`);
  if (json[0] !== 0x7b) throw fail(`starts with byte ${json[0] ?? "none"}, expected "{"`);
  let root: unknown;
  try {
    root = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(json));
  } catch (error) {
    throw fail(error instanceof SyntaxError ? "is not JSON" : "is not UTF-8");
  }
  if (!isObject(root)) throw fail("is no JSON object");
  return root;
}

function readMetadata(value: unknown): Readonly<Record<string, string>> {
  if (isObject(value) && Object.values(value).every((text) => typeof text === "string")) {
    return value as Record<string, string>;
  }
  throw new SafetensorsError(
    "Malformed",
    `reading a safetensors file: its ${METADATA} is not an object of texts`,
  );
}

function readTensor(name: string, value: unknown, dataAt: number): SafetensorsEntry {
  const fail = (code: SafetensorsErrorCode, why: string) =>
    new SafetensorsError(code, `reading a safetensors file: tensor ${show(name)} ${why}`);
  if (!isObject(value)) throw fail("Malformed", "is not described by an object");
  const { dtype, shape, data_offsets: offsets } = value;
  if (dtype !== "F32" && dtype !== "BF16") {
    throw fail("Dtype", `has dtype ${show(dtype)}, expected F32 or BF16`);
  }
  if (!Array.isArray(shape) || !shape.every(isCount)) {
    throw fail("Malformed", `has the shape ${show(shape)}, expected a list of whole numbers`);
  }
  const [begin, end] = Array.isArray(offsets) ? offsets as unknown[] : [];
  if (!isCount(begin) || !isCount(end) || (offsets as unknown[]).length !== 2 || end < begin) {
    throw fail("Malformed", `has the data_offsets ${show(offsets)}, expected [begin, end]`);
  }
  const nbytes = elementCount(shape) * WIDTHS[dtype];
  if (nbytes !== end - begin) {
    throw fail(
      "Offsets",
      `of shape ${show(shape)} needs ${nbytes} bytes, its data_offsets span ${end - begin}`,
    );
  }
  return { name, dtype, shape, at: dataAt + begin, nbytes };
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function isCount(value: unknown): value is number {
  return Number.isSafeInteger(value) && (value as number) >= 0;
}

function oversized(doing: string, length: number): SafetensorsError {
  return new SafetensorsError(
    "Oversized",
    `${doing} a safetensors file: its header has ${length} bytes, at most ` +
      `${SAFETENSORS_MAX_HEADER_BYTES} are allowed`,
  );
}

/** What a file says, shortened: a header may be long. */
function show(value: unknown): string {
  const text = JSON.stringify(value) ?? "nothing";
  return text.length > 80 ? `${text.slice(0, 77)}...` : text;
}
