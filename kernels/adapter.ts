/**
 * Looks for a GPU without loading ONNX Runtime.
 *
 * @module
 */

/** What can be known of an adapter before it is used. */
export interface Adapter {
  /** Its own description, such as a GPU's name. */
  readonly name: string;
  /** True when it computes on the CPU. */
  readonly software: boolean;
}

/** A driver that does not answer within this many ms is taken for none. */
const ADAPTER_MS = 2_000;

/** Names and kinds an adapter from what its driver says of itself. */
export function describeAdapter(info: GPUAdapterInfo): Adapter {
  const name = info.description || info.device || info.vendor || "unnamed adapter";
  const software = info.isFallbackAdapter ||
    /llvmpipe|lavapipe|softpipe|swiftshader|software|basic render/i.test(name);
  return { name, software };
}

/** The adapter that ONNX Runtime would take, or undefined where there is none. */
export async function findAdapter(): Promise<Adapter | undefined> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const late = new Promise<null>((resolve) => {
    timer = setTimeout(() => resolve(null), ADAPTER_MS);
  });
  try {
    const request = navigator.gpu.requestAdapter({ powerPreference: "high-performance" });
    const adapter = await Promise.race([request, late]);
    return adapter === null ? undefined : describeAdapter(adapter.info);
  } catch {
    // A driver that throws is as good as none; ONNX Runtime's own attempt would say why.
    return undefined;
  } finally {
    clearTimeout(timer);
  }
}
