/**
 * The kernel that the options ask for.
 *
 * @module
 */
import type { Arena } from "../kernels/arena.ts";
import { chooseKernel, type ChosenKernel } from "../kernels/choose.ts";
import type { CommonOptions } from "./common_options.ts";

/**
 * Makes the kernel; whatever was asked for, one that gives the right sums.
 *
 * @param arena The memory in which the frames will lie.
 */
export function makeKernel(options: CommonOptions, arena: Arena): Promise<ChosenKernel> {
  const { kernel: request, gpuThresholdBytes, kernelCache: cacheFile } = options;
  return chooseKernel({ request, gpuThresholdBytes, cacheFile, arena });
}
