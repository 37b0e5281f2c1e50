/**
 * Prints what every kernel makes of this machine, and what `auto` chooses: `deno task kernels`.
 *
 * @module
 */

import { Arena } from "../kernels/arena.ts";
import { chooseKernel } from "../kernels/choose.ts";
import { formatBytes, formatLadder } from "../kernels/ladder.ts";

const kernel = await chooseKernel({ request: "auto", arena: new Arena(), measureAll: true });
const { adapter, softwareAdapter, cpu, gpu, gpuFromBytes, notes, rungs, flushesSubnormals } = kernel
  .describe();
console.log(formatLadder(rungs));
console.log(
  `\nadapter: ${adapter ?? "none"}${softwareAdapter ? " (software: auto does not take it)" : ""}`,
);
console.log(
  gpu === undefined || gpuFromBytes === undefined
    ? `auto: ${cpu} for every size`
    : `auto: ${cpu}, and ${gpu} for tensors of at least ${formatBytes(gpuFromBytes)}`,
);
if (flushesSubnormals) console.log("subnormals are taken for zeros");
for (const note of notes) console.log(note);
await kernel.close();
