/**
 * The consensus as the root keeps it: the frame of the last result, for each group of shapes.
 *
 * A training may average several lists of tensors, each in rounds of its own: parameters in one, buffers
 * in another. Each list of shapes is a group, in the order in which they first came.
 *
 * @module
 */
import type { Bytes } from "../../frames/slot.ts";
import { FrameSlot } from "../../frames/slot.ts";
import type { Arena } from "../../kernels/arena.ts";
import { elementCount, type FrameHeader } from "../../wire/round_frame.ts";

/** Lists of shapes kept: a training has few, and each holds a model's memory. */
export const MAX_GROUPS = 4;

/** One list of tensors and its last result. */
export class Group {
  /** Where the frame lies, which readers named to {@link Group.hold} still read. */
  slot: FrameSlot;
  /** Its headers. */
  header: FrameHeader;
  #readers: Promise<unknown> = Promise.resolve();

  constructor(slot: FrameSlot, header: FrameHeader) {
    this.slot = slot;
    this.header = header;
  }

  /** The frame. */
  get bytes(): Bytes {
    return this.slot.frame;
  }

  /** Keeps the frame as it is until `reader` has settled. */
  hold(reader: Promise<unknown>): void {
    this.#readers = Promise.allSettled([this.#readers, reader]);
  }

  /** Settles when nobody reads the frame any more. */
  get free(): Promise<unknown> {
    return this.#readers;
  }

  /** The values of a run of one tensor. */
  run(tensor: number, from: number, nbytes: number): Bytes {
    const at = this.header.tensors[tensor]!.at + 4 * from;
    return this.bytes.subarray(at, at + nbytes);
  }
}

/** All groups. */
export class Consensus {
  readonly #arena: Arena;
  readonly #groups: Group[] = [];

  /** @param arena The memory in which the frames lie. */
  constructor(arena: Arena) {
    this.#arena = arena;
  }

  /** The groups, in the order in which they first came. */
  get groups(): readonly Group[] {
    return this.#groups;
  }

  /** The group of a frame's shapes, whatever its dtypes. */
  find(header: FrameHeader): Group | undefined {
    return this.#groups.find((group) => sameShapes(group.header, header));
  }

  /** Adds a group that was read from elsewhere. */
  restore(slot: FrameSlot, header: FrameHeader): void {
    this.#groups.push(new Group(slot, header));
  }

  /**
   * Keeps a result. The frame is not copied: its slot is kept, and the slot of the one before it is given
   * for the next fold. Only a frame that would waste most of a large slot is copied.
   *
   * @param out The slot in which it lies.
   * @returns The group, undefined when there are too many; and the slot to fold into from here on.
   */
  async keep(
    header: FrameHeader,
    out: FrameSlot,
  ): Promise<{ group: Group | undefined; out: FrameSlot }> {
    let group = this.find(header);
    if (group === undefined) {
      if (this.#groups.length === MAX_GROUPS) return { group, out };
      group = new Group(new FrameSlot(this.#arena), header);
      this.#groups.push(group);
    }
    await group.free;
    group.header = header;
    if (2 * header.length < out.capacity) {
      group.slot.reserve(header.length);
      group.slot.frame.set(out.frame);
      return { group, out };
    }
    const next = group.slot;
    group.slot = out;
    return { group, out: next };
  }
}

/** The number of all values of a frame. */
export function valueCount({ tensors }: FrameHeader): number {
  return tensors.reduce((sum, { shape }) => sum + elementCount(shape), 0);
}

function sameShapes(a: FrameHeader, b: FrameHeader): boolean {
  return a.tensors.length === b.tensors.length && a.tensors.every(({ shape }, i) => {
    const other = b.tensors[i]!.shape;
    return shape.length === other.length && shape.every((dim, d) => dim === other[d]);
  });
}
