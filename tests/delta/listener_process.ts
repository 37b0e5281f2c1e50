// A listener in a process of its own, whose memory a test can watch. Prints its address, then a line of
// figures for every line on standard input.
import { TextLineStream } from "@std/streams";
import { DeltaListener } from "../../delta/listener.ts";
import { RING } from "./fragments.ts";

const layers = [{ shape: [2], values: new Float32Array(2) }];
const listener = DeltaListener.listen({
  listen: { hostname: "127.0.0.1", port: 0 },
  ring: RING,
  layers,
});
console.log(JSON.stringify(listener.address));
const lines: ReadableStream<string> = Deno.stdin.readable
  .pipeThrough(new TextDecoderStream())
  .pipeThrough(new TextLineStream());
for await (const _ of lines) {
  console.log(JSON.stringify({
    rss: Deno.memoryUsage().rss,
    connections: listener.connections,
    telemetry: listener.telemetry,
    values: [...layers[0]!.values],
  }));
}
await listener.close();
