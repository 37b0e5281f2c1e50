/**
 * Looks at what would sum: the kernel that was asked for, and the adapter under it.
 *
 * @module
 */
import type { KernelOption } from "../cli/common_options.ts";
import { findAdapter } from "../kernels/adapter.ts";
import { Arena } from "../kernels/arena.ts";
import { chooseKernel } from "../kernels/choose.ts";
import { amiss, type Finding, ok } from "./finding.ts";

/** Opens the kernel as relay and controller do, and compares its sums with plain ones. */
export async function checkKernel(request: KernelOption): Promise<Finding[]> {
  const findings: Finding[] = [];
  const quiet = { info: () => {}, warn: () => {} };
  const kernel = await chooseKernel({ request, arena: new Arena(), logger: quiet });
  try {
    const { cpu, gpu, notes, flushesSubnormals } = kernel.describe();
    const sums = gpu === undefined ? cpu : `${cpu}, and ${gpu} for large tensors`;
    const used = `${sums} (asked for: ${request})`;
    findings.push(
      notes.length === 0
        ? ok("kernel", used)
        : amiss("kernel", "warning", `${used}; ${notes.join("; ")}`, KERNEL_ADVICE),
    );
    if (flushesSubnormals) {
      findings.push(amiss(
        "kernel",
        "warning",
        "the adapter takes subnormals for zeros, so that its sums may differ from other hosts'",
        "the same kernel on all hosts, or --kernel simd, gives the same bits",
      ));
    }
  } finally {
    await kernel.close();
  }
  findings.push(await adapter(request));
  return findings;
}

const KERNEL_ADVICE =
  "--kernel simd needs nothing; ONNX Runtime's need --allow-all and its package";

async function adapter(request: KernelOption): Promise<Finding> {
  const found = await findAdapter();
  if (found === undefined) {
    return request === "ort-webgpu"
      ? amiss(
        "adapter",
        "problem",
        "there is no WebGPU adapter",
        "install the GPU's Vulkan driver (vulkaninfo lists what it sees), or take --kernel simd",
      )
      : ok("adapter", `none; --kernel ${request} needs none`);
  }
  return found.software && request === "ort-webgpu"
    ? amiss("adapter", "warning", `${found.name} computes on the CPU`, "--kernel simd is quicker")
    : ok("adapter", `${found.name}${found.software ? ", which computes on the CPU" : ""}`);
}
