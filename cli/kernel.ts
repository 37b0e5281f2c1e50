/**
 * The kernel that the options ask for.
 *
 * @module
 */
import type { Arena } from "../kernels/arena.ts";
import type { FoldKernel } from "../kernels/kernel.ts";
import { PlainKernel } from "../kernels/plain.ts";
import { SimdKernel } from "../kernels/simd.ts";
import type { CommonOptions } from "./common_options.ts";

/**
 * Makes the kernel.
 *
 * @param arena The memory in which the frames will lie.
 */
export function makeKernel(options: CommonOptions, arena: Arena): Promise<FoldKernel> {
  return Promise.resolve(
    options.kernel === "plain" ? new PlainKernel() : SimdKernel.create(arena),
  );
}
