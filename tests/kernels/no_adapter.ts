// Run with no WebGPU backend to be had: asks for ort-webgpu, sums, and prints what happened as JSON.
import { configure } from "@logtape/logtape";
import { Arena } from "../../kernels/arena.ts";
import { chooseKernel } from "../../kernels/choose.ts";

const warnings: string[] = [];
await configure({
  sinks: { list: (record) => void warnings.push(record.message.join("")) },
  loggers: [
    { category: ["logtape"], sinks: [] },
    { category: ["tierfold"], sinks: ["list"], lowestLevel: "warning" },
  ],
});
const kernel = await chooseKernel({ request: "ort-webgpu", arena: new Arena() });
const out = new Float32Array(3);
const sum = kernel.begin(new Uint8Array(out.buffer));
await sum.add([Float32Array.of(1, -0, 1e8), Float32Array.of(2, -0, 1)]
  .map((values) => new Uint8Array(values.buffer)));
await sum.finish(0.5);
console.log(JSON.stringify({
  out: [...out],
  kernel: kernel.name,
  described: kernel.describe(),
  warnings,
}));
await kernel.close();
