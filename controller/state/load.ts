/**
 * Reading a checkpoint without a controller: for ranks that start from one, and for tools.
 *
 * @module
 */
import { getLogger } from "@logtape/logtape";
import { plainConversions } from "../../kernels/convert.ts";
import type { SafetensorsEntry } from "../../wire/safetensors.ts";
import { CheckpointError } from "./checkpoint_error.ts";
import { type CheckpointContents, readCheckpointFile } from "./checkpoint_file.ts";
import { consensusCount } from "./checkpoint_info.ts";
import { type Place, readNewest } from "./checkpoints.ts";

/** A tensor of the consensus. */
export interface LoadedTensor {
  /** The name in the controller's manifest, or `tensor.0` and so on. */
  readonly name: string;
  /** The dims; empty for a scalar. */
  readonly shape: readonly number[];
  /** f32 values, row-major. */
  readonly data: Float32Array<ArrayBuffer>;
}

/** A consensus from the disk. */
export interface LoadedCheckpoint {
  /** The file it came from. */
  readonly path: string;
  /** How many rounds had changed the consensus. */
  readonly step: number;
  /** Its tensors, in the order in which the ranks gave them to their rounds. */
  readonly tensors: readonly LoadedTensor[];
}

/**
 * Reads the consensus from a checkpoint, verified.
 *
 * @param path A checkpoint, or a directory of them, of which the newest good one is taken: DIR/checkpoints
 *   for a controller's `--state DIR`.
 * @throws {CheckpointError} when there is no good one.
 */
export async function loadCheckpoint(path: string): Promise<LoadedCheckpoint> {
  let buffers: Uint8Array<ArrayBuffer>[] = [];
  const place = ({ header }: CheckpointContents) =>
    buffers = header.tensors.map(({ nbytes }) => new Uint8Array(nbytes));
  const found = await isDirectory(path)
    ? await newest(path, place)
    : { ...await readCheckpointFile(path, place), path };
  if (found === undefined) {
    throw new CheckpointError("Unreadable", path, "there is no checkpoint in this directory");
  }
  const { info, header } = found;
  return {
    path: found.path,
    step: info.step,
    tensors: header.tensors.slice(0, consensusCount(info)).map((entry, i) => ({
      name: entry.name,
      shape: entry.shape,
      data: values(entry, buffers[i]!),
    })),
  };
}

async function newest(directory: string, place: Place) {
  const { found, damaged } = await readNewest(directory, place);
  for (const { error } of damaged) {
    getLogger(["tierfold", "state"]).warn("{reason}; the one before it is taken", {
      reason: error.message,
    });
  }
  return found;
}

async function isDirectory(path: string): Promise<boolean> {
  try {
    return (await Deno.stat(path)).isDirectory;
  } catch (error) {
    if (error instanceof Error) {
      throw new CheckpointError("Unreadable", path, error.message, { cause: error });
    }
    throw error;
  }
}

function values(
  { dtype }: SafetensorsEntry,
  bytes: Uint8Array<ArrayBuffer>,
): Float32Array<ArrayBuffer> {
  if (dtype === "F32") return new Float32Array(bytes.buffer);
  const wide = new Float32Array(bytes.length / 2);
  plainConversions.bf16ToF32(new Uint8Array(wide.buffer), bytes);
  return wide;
}
