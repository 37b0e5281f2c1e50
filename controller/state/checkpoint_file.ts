/**
 * One checkpoint: a safetensors file that carries its own checksum.
 *
 * Any safetensors reader opens it. Its metadata holds, in this order:
 *
 *     tierfold.sha256       SHA-256, hex, over the whole file with these 64 digits as zeros
 *     tierfold.checkpoint   {@link CheckpointInfo} as JSON
 *     format                "pt", which some readers want
 *
 * and its tensors are those of the consensus, group by group, and behind them the outer optimizer's
 * state.
 *
 * @module
 */
import { createHash, type Hash } from "node:crypto";
import { Breather } from "../../transport/breather.ts";
import {
  decodeSafetensorsHeader,
  decodeSafetensorsPrefix,
  encodeSafetensorsHeader,
  SAFETENSORS_PREFIX_BYTES,
  SafetensorsError,
  type SafetensorsHeader,
  type SafetensorsTensor,
} from "../../wire/safetensors.ts";
import { invariant } from "../../wire/errors.ts";
import { type CheckpointInfo, decodeInfo, encodeInfo, tensorCount } from "./checkpoint_info.ts";
import { CheckpointError } from "./checkpoint_error.ts";

const DIGEST_KEY = "tierfold.sha256";
const INFO_KEY = "tierfold.checkpoint";
const DIGEST_CHARS = 64;
const NO_DIGEST = "0".repeat(DIGEST_CHARS);
/** What stands in front of the digest. */
const DIGEST_START = new TextEncoder().encode(`{"__metadata__":{"${DIGEST_KEY}":"`);
const DIGEST_AT = SAFETENSORS_PREFIX_BYTES + DIGEST_START.length;

/** Bytes hashed, and read or written, between turns of the loop: below 1 ms of hashing. */
const PIECE_BYTES = 1024 ** 2;
/** Tensors below this go through a buffer of it, so that many small ones are not as many system calls. */
const STAGING_BYTES = 256 * 1024;

/** A tensor and its values' bytes. */
export interface CheckpointTensor extends SafetensorsTensor {
  /** Unchanged until the file is written. */
  readonly bytes: Uint8Array<ArrayBufferLike>;
}

/** What a checkpoint says of itself. */
export interface CheckpointContents {
  readonly info: CheckpointInfo;
  readonly header: SafetensorsHeader;
}

/** A checkpoint's size and checksum. */
export interface CheckpointSeal {
  readonly bytes: number;
  readonly sha256: string;
}

/**
 * Writes a checkpoint and forces it to the disk. The bytes go to the file from where they lie; no tensor
 * is copied but small ones.
 *
 * @param path The file, which must not be there yet.
 * @param written Called when no tensor's bytes are needed any more, before the disk has them.
 * @throws {Error} as the system says: no room, no permission.
 */
export async function writeCheckpointFile(
  path: string,
  tensors: readonly CheckpointTensor[],
  info: CheckpointInfo,
  written: () => void = () => {},
): Promise<CheckpointSeal> {
  const { bytes: start, header } = encodeSafetensorsHeader(tensors, {
    [DIGEST_KEY]: NO_DIGEST,
    [INFO_KEY]: encodeInfo(info),
    format: "pt",
  });
  using file = await Deno.open(path, { write: true, createNew: true });
  const hash = createHash("sha256").update(start);
  await file.seek(start.length, Deno.SeekMode.Start);
  const writer = new HashingWriter(file, hash);
  for (const { bytes } of tensors) await writer.write(bytes);
  await writer.flush();
  written();
  const sha256 = hash.digest("hex");
  start.set(new TextEncoder().encode(sha256), DIGEST_AT);
  await file.seek(0, Deno.SeekMode.Start);
  await writeFully(file, start);
  await file.sync();
  return { bytes: header.fileBytes, sha256 };
}

/**
 * Reads a checkpoint: once to verify its checksum, and once more into its places.
 *
 * @param place Given what the file says of itself, verified: the bytes for each of its tensors, as long as
 *   each says. What it throws comes through.
 * @throws {CheckpointError} when the file is no whole, unchanged checkpoint, or cannot be read.
 */
export async function readCheckpointFile(
  path: string,
  place: (contents: CheckpointContents) => readonly Uint8Array<ArrayBufferLike>[],
): Promise<CheckpointContents & CheckpointSeal> {
  try {
    using file = await Deno.open(path, { read: true });
    return await read(file, path, place);
  } catch (error) {
    if (error instanceof CheckpointError) throw error;
    if (error instanceof SafetensorsError) {
      throw new CheckpointError("Damaged", path, error.message, { cause: error });
    }
    const kinds = [Deno.errors.NotFound, Deno.errors.NotCapable, Deno.errors.PermissionDenied];
    if (kinds.some((kind) => error instanceof kind)) {
      throw new CheckpointError("Unreadable", path, (error as Error).message, { cause: error });
    }
    if (error instanceof Error && isSystemError(error)) {
      throw new CheckpointError("Damaged", path, error.message, { cause: error });
    }
    throw error;
  }
}

/** Whether the system failed to read, as it does from a broken disk. */
function isSystemError(error: Error): boolean {
  return /\(os error \d+\)$/.test(error.message);
}

async function read(
  file: Deno.FsFile,
  path: string,
  place: (contents: CheckpointContents) => readonly Uint8Array<ArrayBufferLike>[],
): Promise<CheckpointContents & CheckpointSeal> {
  const { size, isFile } = await file.stat();
  if (!isFile) throw new CheckpointError("Unreadable", path, "it is no file");
  const prefix = new Uint8Array(Math.min(size, SAFETENSORS_PREFIX_BYTES));
  await readFully(file, prefix, path);
  const length = decodeSafetensorsPrefix(prefix, size);
  const start = new Uint8Array(SAFETENSORS_PREFIX_BYTES + length);
  start.set(prefix);
  await readFully(file, start.subarray(prefix.length), path);
  const header = decodeSafetensorsHeader(start.subarray(prefix.length), size);
  const sha256 = digestIn(start, path);
  start.fill(0x30, DIGEST_AT, DIGEST_AT + DIGEST_CHARS);

  const pass = () => new HashingReader(file, createHash("sha256").update(start), path);
  const first = pass();
  const scratch = new Uint8Array(PIECE_BYTES);
  for (let left = size - start.length; left > 0; left -= PIECE_BYTES) {
    await first.read(scratch.subarray(0, left));
  }
  first.expect(sha256);

  const contents = { header, info: readInfo(header, path) };
  const places = place(contents);
  await file.seek(start.length, Deno.SeekMode.Start);
  const second = pass();
  for (let i = 0; i < header.tensors.length; i++) {
    const bytes = places[i];
    invariant(
      bytes?.length === header.tensors[i]!.nbytes,
      `tensor ${i} of a checkpoint is given ${bytes?.length} bytes`,
    );
    await second.read(bytes);
  }
  // Somebody may have changed it in between.
  second.expect(sha256);
  return { ...contents, bytes: size, sha256 };
}

/** What a file of the right checksum says of itself. */
function readInfo({ metadata, tensors }: SafetensorsHeader, path: string): CheckpointInfo {
  const info = decodeInfo(metadata[INFO_KEY] ?? "");
  if (info === undefined || tensorCount(info) !== tensors.length) {
    throw new CheckpointError(
      "Foreign",
      path,
      `its checksum is right, but its ${INFO_KEY} is not understood: it is of another version`,
    );
  }
  return info;
}

function digestIn(start: Uint8Array, path: string): string {
  const found = start.subarray(SAFETENSORS_PREFIX_BYTES, DIGEST_AT);
  if (found.length !== DIGEST_START.length || !found.every((b, i) => b === DIGEST_START[i])) {
    throw new CheckpointError(
      "Damaged",
      path,
      `its header does not start with ${DIGEST_KEY}: bytes of it have changed, or it is none of ours`,
    );
  }
  const bytes = start.subarray(DIGEST_AT, DIGEST_AT + DIGEST_CHARS);
  return new TextDecoder("latin1").decode(bytes);
}

/** Hashes what it writes. */
class HashingWriter {
  readonly #file: Deno.FsFile;
  readonly #hash: Hash;
  readonly #staging = new Uint8Array(STAGING_BYTES);
  readonly #breather = new Breather();
  #staged = 0;

  constructor(file: Deno.FsFile, hash: Hash) {
    this.#file = file;
    this.#hash = hash;
  }

  async write(bytes: Uint8Array<ArrayBufferLike>): Promise<void> {
    if (this.#staged + bytes.length > STAGING_BYTES) await this.flush();
    if (bytes.length < STAGING_BYTES) {
      this.#staging.set(bytes, this.#staged);
      this.#staged += bytes.length;
      return;
    }
    for (let from = 0; from < bytes.length; from += PIECE_BYTES) {
      await this.#put(bytes.subarray(from, from + PIECE_BYTES));
    }
  }

  async flush(): Promise<void> {
    const staged = this.#staging.subarray(0, this.#staged);
    this.#staged = 0;
    await this.#put(staged);
  }

  async #put(piece: Uint8Array<ArrayBufferLike>): Promise<void> {
    this.#hash.update(piece);
    await writeFully(this.#file, piece);
    await this.#breather.breathe();
  }
}

/** Hashes what it reads; small reads come from a buffer. */
class HashingReader {
  readonly #file: Deno.FsFile;
  readonly #hash: Hash;
  readonly #path: string;
  readonly #buffer = new Uint8Array(STAGING_BYTES);
  readonly #breather = new Breather();
  #ahead = this.#buffer.subarray(0, 0);

  constructor(file: Deno.FsFile, hash: Hash, path: string) {
    this.#file = file;
    this.#hash = hash;
    this.#path = path;
  }

  /** Ends with the checksum of everything read, which must be that. */
  expect(sha256: string): void {
    const found = this.#hash.digest("hex");
    if (found === sha256) return;
    throw new CheckpointError(
      "Damaged",
      this.#path,
      `its checksum is ${found}, expected ${sha256}: bytes of it have changed`,
    );
  }

  async read(into: Uint8Array<ArrayBufferLike>): Promise<void> {
    let done = 0;
    while (done < into.length) {
      const wanted = into.length - done;
      if (this.#ahead.length === 0 && wanted >= STAGING_BYTES) {
        const piece = into.subarray(done, done + PIECE_BYTES);
        await this.#take(piece);
        done += piece.length;
        continue;
      }
      if (this.#ahead.length === 0) {
        const count = await this.#file.read(this.#buffer);
        if (count === null) throw becameShorter(this.#path);
        this.#ahead = this.#buffer.subarray(0, count);
        this.#hash.update(this.#ahead);
      }
      const count = Math.min(wanted, this.#ahead.length);
      into.set(this.#ahead.subarray(0, count), done);
      this.#ahead = this.#ahead.subarray(count);
      done += count;
    }
  }

  async #take(piece: Uint8Array<ArrayBufferLike>): Promise<void> {
    await readFully(this.#file, piece, this.#path);
    this.#hash.update(piece);
    await this.#breather.breathe();
  }
}

async function writeFully(file: Deno.FsFile, bytes: Uint8Array<ArrayBufferLike>): Promise<void> {
  for (let done = 0; done < bytes.length;) done += await file.write(bytes.subarray(done));
}

async function readFully(
  file: Deno.FsFile,
  into: Uint8Array<ArrayBufferLike>,
  path: string,
): Promise<void> {
  for (let done = 0; done < into.length;) {
    const count = await file.read(into.subarray(done));
    if (count === null) throw becameShorter(path);
    done += count;
  }
}

function becameShorter(path: string): CheckpointError {
  return new CheckpointError("Damaged", path, "it became shorter while it was read");
}
