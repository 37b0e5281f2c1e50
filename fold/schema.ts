/**
 * Which frames may be folded together, and how they differ when they may not.
 *
 * @module
 */
import { PROTOCOL_BF16, PROTOCOL_F32 } from "../wire/handshake.ts";
import { DTYPE_BF16, DTYPE_F32, elementCount, type FrameHeader } from "../wire/round_frame.ts";
import { WireError } from "../wire/errors.ts";

function shapeText(shape: readonly number[]): string {
  return `[${shape.join(", ")}]`;
}

/**
 * Checks what a frame says of itself: every tensor f32, and as many bytes as its shape needs. In
 * protocol 3 a tensor may also be bf16, or leave its zeros out.
 *
 * @param who Whose frame it is, for the error: "rank 3".
 * @param version The protocol version that its sender speaks.
 * @throws {WireError} naming the tensor.
 */
export function checkFoldable(
  header: FrameHeader,
  who: string,
  version: number = PROTOCOL_F32,
): void {
  const compact = version >= PROTOCOL_BF16;
  header.tensors.forEach((tensor, i) => {
    if (tensor.dtype !== DTYPE_F32 && !(compact && tensor.dtype === DTYPE_BF16)) {
      throw new WireError(
        "dtype",
        "connection",
        `folding the frame of ${who}: tensor ${i} has dtype ${tensor.dtype}, which is not ` +
          `supported; expected ${DTYPE_F32} (f32)${compact ? ` or ${DTYPE_BF16} (bf16)` : ""}`,
      );
    }
    const needed = (tensor.dtype === DTYPE_F32 ? 4 : 2) * elementCount(tensor.shape);
    if (tensor.nbytes !== needed && !(compact && tensor.nbytes === 0)) {
      throw new WireError(
        "shape",
        "connection",
        `folding the frame of ${who}: tensor ${i} of shape ${shapeText(tensor.shape)} needs ` +
          `${needed} bytes and carries ${tensor.nbytes}`,
      );
    }
  });
}

/**
 * How `header` differs from `reference` in a way that forbids folding them together. Zeros that one of
 * them leaves out are no difference.
 *
 * @param options.anyDtype Whether dtypes may differ, as those of a frame and of its round's result.
 * @returns A phrase naming the tensor and both sides, or undefined when they agree.
 */
export function schemaDifference(
  header: FrameHeader,
  reference: FrameHeader,
  options: { anyDtype?: boolean } = {},
): string | undefined {
  if (header.kind !== reference.kind) {
    return `it is a ${header.kind} frame, expected ${reference.kind}`;
  }
  if (header.tensors.length !== reference.tensors.length) {
    return `it has ${header.tensors.length} tensors, expected ${reference.tensors.length}`;
  }
  for (let i = 0; i < header.tensors.length; i++) {
    const tensor = header.tensors[i]!;
    const wanted = reference.tensors[i]!;
    if (tensor.dtype !== wanted.dtype && !options.anyDtype) {
      return `tensor ${i} has dtype ${named(tensor.dtype)}, expected ${
        named(wanted.dtype)
      }; all ranks ` +
        "send the same";
    }
    if (shapeText(tensor.shape) !== shapeText(wanted.shape)) {
      return `tensor ${i} has shape ${shapeText(tensor.shape)}, expected ${
        shapeText(wanted.shape)
      }`;
    }
  }
  return undefined;
}

/** The error for a frame that cannot be folded with the others of its round. */
export function schemaError(who: string, difference: string, reference: string): WireError {
  return new WireError(
    "schema",
    "connection",
    `folding the frame of ${who} with that of ${reference}: ${difference}; the round goes on ` +
      `without ${who}`,
  );
}

/**
 * Splits a round's frames into those of one schema and the odd ones out. The schema with the largest
 * `votes` stays; of equals, the one that comes first.
 *
 * @param votes How many ranks stand behind each frame.
 * @returns Indices of the frames that stay, and of the odd ones with what is wrong with each.
 */
export function splitBySchema(
  headers: readonly FrameHeader[],
  votes: readonly number[],
): { kept: number[]; odd: { index: number; difference: string }[] } {
  const groups: { members: number[]; votes: number }[] = [];
  headers.forEach((header, index) => {
    const group = groups.find(({ members }) =>
      schemaDifference(header, headers[members[0]!]!) === undefined
    );
    if (group === undefined) groups.push({ members: [index], votes: votes[index]! });
    else {
      group.members.push(index);
      group.votes += votes[index]!;
    }
  });
  const first = groups[0];
  if (first === undefined) return { kept: [], odd: [] };
  const winner = groups.reduce((best, group) => group.votes > best.votes ? group : best, first);
  const reference = headers[winner.members[0]!]!;
  const odd = headers.flatMap((header, index) => {
    const difference = schemaDifference(header, reference);
    return difference === undefined ? [] : [{ index, difference }];
  });
  return { kept: winner.members, odd };
}

function named(dtype: number): string {
  return dtype === DTYPE_F32 ? "f32" : dtype === DTYPE_BF16 ? "bf16" : `${dtype}`;
}
