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

function reply(message: OrtReply, transfer: Transferable[] = []): void {
  self.postMessage(message, transfer);
}

function fail(reason: string): void {
  if (failed) return;
  failed = true;
  reply({ type: "failed", reason });
}

/** Sends a piece of a result on, without copying it. */
function piece(id: number): (at: number, data: Uint8Array<ArrayBuffer>) => void {
  return (at, data) => {
    if (!failed) reply({ type: "piece", id, at, data }, [data.buffer]);
  };
}

async function handle(request: OrtRequest): Promise<void> {
  if (request.type === "open") {
    engine = await Engine.open(request.provider, request.chunkBytes, fail);
    reply({ type: "opened", opened: engine.opened });
    return;
  }
  if (engine === undefined || request.type === "destroy-device") return;
  if (request.type === "drop") return engine.drop(request.sum);
  switch (request.type) {
    case "add":
      await engine.add(request.sum, request.sources);
      break;
    case "finish":
      await engine.finish(request.sum, request.factor, piece(request.id));
      break;
    case "scale":
      await engine.scale(request.data, request.factor, piece(request.id));
      break;
  }
  if (!failed) reply({ type: "done", id: request.id });
}

self.onmessage = (event: MessageEvent<OrtRequest>) => {
  const request = event.data;
  // A device goes when it goes, not when it is its turn.
  if (request.type === "destroy-device") {
    engine?.close();
    return;
  }
  queue = queue.then(async () => {
    if (failed) return;
    try {
      await handle(request);
    } catch (error) {
      fail(error instanceof Error ? error.message : String(error));
    }
  });
};
