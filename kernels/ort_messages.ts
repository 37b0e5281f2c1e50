/**
 * What {@link ./ort.ts} and its worker say to each other.
 *
 * @module
 */
import type { F32Bytes } from "./kernel.ts";

/** Where ONNX Runtime runs the models. */
export type OrtProvider = "wasm" | "webgpu";

/** To the worker. Work is done in the order of the messages, one at a time. */
export type OrtRequest =
  | {
    readonly type: "open";
    readonly provider: OrtProvider;
    /** Bytes of a tensor handled at a time; less where the adapter's limits are lower. */
    readonly chunkBytes: number;
  }
  | {
    readonly type: "add";
    readonly id: number;
    readonly sum: number;
    readonly sources: readonly F32Bytes[];
  }
  | {
    readonly type: "finish";
    readonly id: number;
    readonly sum: number;
    readonly factor: number | undefined;
  }
  | {
    readonly type: "scale";
    readonly id: number;
    readonly data: F32Bytes;
    readonly factor: number;
  }
  /** The sum will not be finished, or was. */
  | { readonly type: "drop"; readonly sum: number }
  | { readonly type: "destroy-device" }
  /** Gives the device back and ends the worker. */
  | { readonly type: "close" };

/** What was opened, for logs and the status. */
export interface OrtOpened {
  /** The adapter's own description, such as a GPU's name; "wasm" for the wasm provider. */
  readonly adapter: string;
  /** True when the adapter computes on the CPU. */
  readonly software: boolean;
  /** Bytes of a tensor handled at a time. */
  readonly chunkBytes: number;
  /** The execution providers on which ONNX Runtime placed the models' nodes. */
  readonly placements: readonly string[];
}

/** From the worker. */
export type OrtReply =
  | { readonly type: "opened"; readonly opened: OrtOpened }
  | { readonly type: "done"; readonly id: number }
  /** One finished piece of a result, `at` bytes from its start; pieces come in order. */
  | {
    readonly type: "piece";
    readonly id: number;
    readonly at: number;
    readonly data: Uint8Array<ArrayBuffer>;
  }
  /** The device is given back; the worker's last word. */
  | { readonly type: "closed" }
  /** The backend is of no more use. */
  | { readonly type: "failed"; readonly reason: string };
