/**
 * The reference kernel: plain loops, no memory of its own, any alignment.
 *
 * @module
 */
import type { Accumulation, F32Bytes, FoldKernel, KernelName } from "./kernel.ts";
import { invariant } from "../wire/errors.ts";

/** Values handled at a time when a run is not 4-byte aligned: two blocks stay in the first-level cache. */
const BLOCK = 1024;

/**
 * Calls `step` over aligned f32 views of `target` and `source`, copying through scratch blocks where
 * either is not 4-byte aligned.
 */
function forBlocks(
  target: F32Bytes,
  source: F32Bytes,
  step: (target: Float32Array, source: Float32Array) => void,
): void {
  invariant(
    target.length === source.length && target.length % 4 === 0,
    `a fold of ${source.length} bytes into ${target.length}`,
  );
  if (target.byteOffset % 4 === 0 && source.byteOffset % 4 === 0) {
    const n = target.length / 4;
    step(
      new Float32Array(target.buffer, target.byteOffset, n),
      new Float32Array(source.buffer, source.byteOffset, n),
    );
    return;
  }
  const a = new Float32Array(BLOCK);
  const b = new Float32Array(BLOCK);
  const aBytes = new Uint8Array(a.buffer);
  const bBytes = new Uint8Array(b.buffer);
  for (let at = 0; at < target.length; at += BLOCK * 4) {
    const end = Math.min(at + BLOCK * 4, target.length);
    const n = (end - at) / 4;
    aBytes.set(target.subarray(at, end));
    bBytes.set(source.subarray(at, end));
    step(a.subarray(0, n), b.subarray(0, n));
    target.set(aBytes.subarray(0, end - at), at);
  }
}

function addInto(target: Float32Array, source: Float32Array): void {
  for (let i = 0; i < target.length; i++) target[i] = target[i]! + source[i]!;
}

/** +0.0 + x: turns -0.0 into +0.0 and leaves every other value alone. */
function startInto(target: Float32Array, source: Float32Array): void {
  for (let i = 0; i < target.length; i++) target[i] = 0 + source[i]!;
}

/** Sums and products as plain JavaScript loops, the bits every other kernel is compared with. */
export class PlainKernel implements FoldKernel {
  readonly name: KernelName = "plain";
  readonly flushesSubnormals: boolean = false;
  readonly wholeFromBytes: number = Infinity;

  begin(out: F32Bytes): Accumulation {
    let started = false;
    return {
      add: (sources) => {
        for (const source of sources) {
          forBlocks(out, source, started ? addInto : startInto);
          started = true;
        }
      },
      finish: (factor) => {
        if (!started) out.fill(0);
        if (factor !== undefined) this.scale(out, factor);
      },
    };
  }

  scale(data: F32Bytes, factor: number): void {
    const f = Math.fround(factor);
    forBlocks(data, data, (target) => {
      for (let i = 0; i < target.length; i++) target[i] = target[i]! * f;
    });
  }

  close(): Promise<void> {
    return Promise.resolve();
  }
}
