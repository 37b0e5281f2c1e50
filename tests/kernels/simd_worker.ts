/// <reference lib="deno.worker" />
import { SimdKernel } from "../../kernels/simd.ts";

/** What the test sends: the shared memory, the compiled module, and where the runs lie. */
interface Job {
  memory: WebAssembly.Memory;
  module: WebAssembly.Module;
  length: number;
  out: number;
  sources: number[];
  factor: number;
}

self.onmessage = (event: MessageEvent<Job>) => {
  const { memory, module, length, out, sources, factor } = event.data;
  const kernel = SimdKernel.create(memory, module);
  const sum = kernel.begin(new Uint8Array(memory.buffer, out, length));
  sum.add(sources.map((at) => new Uint8Array(memory.buffer, at, length)));
  sum.finish(factor);
  self.postMessage("done");
};
