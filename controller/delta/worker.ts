/**
 * The publisher's thread.
 *
 * @module
 */
/// <reference no-default-lib="true" />
/// <reference lib="deno.worker" />
import { PublisherCore } from "./core.ts";
import { ConsensusCopy } from "./copy.ts";
import { roundIsNear } from "./round_sign.ts";
import { CLAIM, type PublisherOrder, type PublisherReport } from "./messages.ts";

/** How often changed telemetry is reported, in milliseconds. */
const REPORT_MS = 200;
/** While a round is near, how many times as long as it works the thread waits. */
const WAIT_SHARE = 5;

const copy = new ConsensusCopy();
let core: PublisherCore | undefined;
let last = "";
let publishing: Promise<void> = Promise.resolve();

/**
 * Waits while a round is near, but for at most {@link WAIT_SHARE} times as long as was worked before, so
 * that rounds without a pause between them are published too.
 */
function roomMaker(rounds: SharedArrayBuffer): (workedMs: number) => Promise<void> {
  return async (workedMs) => {
    const end = performance.now() + WAIT_SHARE * workedMs;
    while (roundIsNear(rounds) && performance.now() < end) {
      await new Promise((resolve) => setTimeout(resolve, 1));
    }
  };
}

function report(message: PublisherReport): void {
  self.postMessage(message);
}

function reportTelemetry(): void {
  if (core === undefined) return;
  const { telemetry } = core;
  const text = JSON.stringify(telemetry);
  if (text === last) return;
  last = text;
  report({ type: "telemetry", telemetry });
}

async function publish(order: PublisherOrder & { type: "consensus" }): Promise<void> {
  const { tensors, buffer, claim } = order;
  const copied = copy.take(buffer, tensors);
  if (claim !== undefined) {
    const state = Atomics.compareExchange(new Int32Array(claim), 0, CLAIM.open, CLAIM.copied);
    // The memory was written again while it was copied.
    if (state !== CLAIM.open) return report({ type: "idle", outcome: "revoked" });
  }
  report({ type: "copied" });
  const done = await core!.publish(copied);
  reportTelemetry();
  report({ type: "idle", outcome: done ? "published" : "refused" });
}

self.onmessage = async ({ data: order }: MessageEvent<PublisherOrder>) => {
  switch (order.type) {
    case "start":
      core = new PublisherCore(order.plan, {
        onEvent: (level, text) => report({ type: "event", level, text }),
        makeRoom: roomMaker(order.rounds),
      });
      reportTelemetry();
      setInterval(reportTelemetry, REPORT_MS);
      break;
    case "consensus":
      publishing = publish(order);
      await publishing;
      break;
    case "stop":
      await publishing;
      await core?.stop(order.flushMs);
      reportTelemetry();
      report({ type: "stopped" });
      self.close();
      break;
  }
};
