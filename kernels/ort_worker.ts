/**
 * The worker that owns ONNX Runtime: takes requests one at a time, in their order.
 *
 * @module
 */
/// <reference lib="deno.worker" />
import { Engine } from "./ort_engine.ts";
import type { OrtReply, OrtRequest } from "./ort_messages.ts";

// ONNX Runtime takes a realm with a location for a browser page and looks there for its files.
Object.defineProperty(globalThis, "location", { value: undefined, configurable: true });

let engine: Engine | undefined;
let failed = false;
let queue: Promise<void> = Promise.resolve();

/** Nothing is said after a failure: the other side has moved on. */
function reply(message: OrtReply, transfer: Transferable[] = []): void {
  if (!failed || message.type === "failed") self.postMessage(message, transfer);
}

function fail(reason: string): void {
  if (failed) return;
  failed = true;
  reply({ type: "failed", reason });
}

/** Sends a piece of a result on, without copying it. */
function piece(id: number): (at: number, data: Uint8Array<ArrayBuffer>) => void {
  return (at, data) => reply({ type: "piece", id, at, data }, [data.buffer]);
}

/** Results on their way, which takes waiting but neither ONNX Runtime nor this thread. */
const leaving = new Set<Promise<void>>();
/** Each holds a tensor and its copy. */
const MOST_LEAVING = 8;

/** Lets a result leave while the next request is served, unless too many are on their way. */
async function release(id: number, delivered: Promise<void>): Promise<void> {
  const left: Promise<void> = delivered.then(
    () => reply({ type: "done", id }),
    (error) => fail(describe(error)),
  ).finally(() => leaving.delete(left));
  leaving.add(left);
  if (leaving.size >= MOST_LEAVING) await Promise.race(leaving);
}

function describe(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

async function handle(
  request: Exclude<OrtRequest, { type: "destroy-device" | "close" }>,
): Promise<void> {
  if (request.type === "open") {
    engine = await Engine.open(request.provider, request.chunkBytes, fail);
    reply({ type: "opened", opened: engine.opened });
    return;
  }
  if (engine === undefined) return;
  switch (request.type) {
    case "add":
      await engine.add(request.sum, request.sources);
      return reply({ type: "done", id: request.id });
    case "finish": {
      const result = await engine.finish(request.sum, request.factor, piece(request.id));
      return await release(request.id, result.delivered);
    }
    case "scale": {
      const result = await engine.scale(request.data, request.factor, piece(request.id));
      return await release(request.id, result.delivered);
    }
    case "drop":
      return engine.drop(request.sum);
  }
}

self.onmessage = (event: MessageEvent<OrtRequest>) => {
  const request = event.data;
  // A device goes when it goes, not when it is its turn.
  if (request.type === "destroy-device") {
    engine?.close();
    return;
  }
  queue = queue.then(async () => {
    if (request.type === "close") {
      engine?.close();
      self.postMessage({ type: "closed" } satisfies OrtReply);
      return self.close();
    }
    if (failed) return;
    try {
      await handle(request);
    } catch (error) {
      fail(describe(error));
    }
  });
};
