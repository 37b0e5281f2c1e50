/**
 * What the controller's loop and the publisher's thread say to each other.
 *
 * @module
 */
import type { PublisherPlan, PublisherTelemetry } from "./core.ts";

/** A tensor of a consensus, as it lies in memory. */
export interface TensorSpan {
  /** Its dims. */
  readonly shape: readonly number[];
  /** 0 for f32, 1 for bf16. */
  readonly dtype: number;
  /** Offset of its bytes in the buffer. */
  readonly at: number;
  /** Bytes of it; 0 for a tensor of zeros that is not sent. */
  readonly nbytes: number;
}

/** Whether the thread may still read, or did read, memory that the loop wants to write again. */
export const CLAIM = { open: 0, copied: 1, revoked: 2 } as const;

/** From the loop to the thread. */
export type PublisherOrder =
  | {
    readonly type: "start";
    readonly plan: PublisherPlan;
    /** What {@link RoundSign} says, for the thread. */
    readonly rounds: SharedArrayBuffer;
  }
  | {
    readonly type: "consensus";
    readonly tensors: readonly TensorSpan[];
    readonly buffer: ArrayBufferLike;
    /** One Int32 of {@link CLAIM}, where the buffer is shared. */
    readonly claim: SharedArrayBuffer | undefined;
  }
  | { readonly type: "stop"; readonly flushMs: number };

/** From the thread to the loop. */
export type PublisherReport =
  /** The consensus has been copied: its memory is not needed any more. */
  | { readonly type: "copied" }
  /** The thread is ready for the next consensus. */
  | { readonly type: "idle"; readonly outcome: "published" | "refused" | "revoked" }
  | { readonly type: "telemetry"; readonly telemetry: PublisherTelemetry }
  | { readonly type: "event"; readonly level: "info" | "warning"; readonly text: string }
  | { readonly type: "stopped" };
