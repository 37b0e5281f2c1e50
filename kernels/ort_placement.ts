/**
 * Finds out where ONNX Runtime placed the nodes of a model. It says so only in its verbose log, which
 * its WASM module writes to standard error through node:fs; silence would mean trusting that nothing
 * was moved to the CPU.
 *
 * @module
 */
import fs from "node:fs";

/**
 * The execution providers named in ONNX Runtime's report of node placements, in order of appearance:
 * "All nodes placed on [X]. Number of nodes: 3", or one line for each provider.
 */
export function placementsIn(log: string): string[] {
  const names = [...log.matchAll(/placed on \[(\w+)\]/g)].map((match) => match[1]!);
  return [...new Set(names)];
}

/**
 * Runs `create` and returns, beside its result, what was written to standard error meanwhile, which
 * does not appear there. Only for a worker with nothing else to say.
 */
export async function withLogCaptured<T>(
  create: () => Promise<T>,
): Promise<{ result: T; log: string }> {
  const lines: string[] = [];
  const writeSync = fs.writeSync;
  const capture = (fd: number, data: string | NodeJS.ArrayBufferView): number => {
    if (fd !== 1 && fd !== 2) return writeSync(fd, data as NodeJS.ArrayBufferView);
    const text = typeof data === "string"
      ? data
      : new TextDecoder().decode(data as unknown as Uint8Array);
    lines.push(text);
    return text.length;
  };
  fs.writeSync = capture as typeof fs.writeSync;
  try {
    return { result: await create(), log: lines.join("") };
  } finally {
    fs.writeSync = writeSync;
  }
}
