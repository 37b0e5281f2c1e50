/**
 * A replica: follows a training cluster's consensus through its deltas, holds live weights, and names
 * digits over HTTP while training goes on.
 *
 *     AXIOM_FLEET_KEY=... deno run --allow-net=127.0.0.1 "--allow-env=AXIOM_*" examples/replica.ts \
 *       [--listen HOST:PORT] [--http HOST:PORT] [--fleet-key-file FILE]
 *
 * It prints `listening HOST:PORT`, an address to give to the controller as --delta-peers, and
 * `http HOST:PORT`, where it answers:
 *
 *     GET  /status    the version that it holds, its shapes and its telemetry
 *     POST /predict   {"pixels": [784 numbers from 0 to 1]}, or the bytes of f32 pixels of many digits
 *
 * With --fleet-key-file it needs --allow-read=FILE too, and notices within a second when the file changes.
 *
 * @module
 */

import { LimitedBytesTransformStream, toBytes } from "@std/streams";
import { Command } from "commander";
import { type Address, DeltaListener, formatAddress, KeyRing, type LiveLayer } from "../mod.ts";
import { PIXELS } from "./digits/data.ts";
import { guess, misfit } from "./digits/forward.ts";

/** Most bytes of a question: 2,600 digits as f32. */
const MAX_QUESTION_BYTES = 8 * 1024 ** 2;

/** Weights that do not change any more, and which consensus they are. */
interface Serving {
  readonly version: number;
  readonly layers: readonly LiveLayer[];
}

function parseAddress(text: string): Address {
  const match = /^(.+):(\d{1,5})$/.exec(text);
  if (match === null) throw new RangeError(`expected HOST:PORT, got "${text}"`);
  return { hostname: match[1]!.replace(/^\[(.*)\]$/, "$1"), port: Number(match[2]) };
}

function answer(status: number, value: unknown): Response {
  return Response.json(value, { status });
}

/** The pixels of a question. */
async function pixelsOf(request: Request): Promise<Float32Array> {
  const limit = new LimitedBytesTransformStream(MAX_QUESTION_BYTES, { error: true });
  const bytes: Uint8Array = request.body === null
    ? new Uint8Array()
    : await toBytes(request.body.pipeThrough(limit));
  let pixels: Float32Array;
  if (request.headers.get("content-type") === "application/json") {
    const { pixels: numbers } = JSON.parse(new TextDecoder().decode(bytes));
    pixels = Float32Array.from(Array.isArray(numbers) ? numbers : [], Number);
  } else pixels = new Float32Array(bytes.slice(0, bytes.length & ~3).buffer);
  if (pixels.length === 0 || pixels.length % PIXELS !== 0 || !pixels.every(Number.isFinite)) {
    throw new RangeError(`expected a multiple of ${PIXELS} finite pixels, got ${pixels.length}`);
  }
  return pixels;
}

async function predict(request: Request, serving: Serving | undefined): Promise<Response> {
  if (serving === undefined) return answer(503, { error: "no consensus has arrived yet" });
  const problem = misfit(serving.layers);
  if (problem !== undefined) {
    return answer(503, { error: `these weights name no digits: ${problem}` });
  }
  try {
    const guesses = guess(serving.layers, await pixelsOf(request));
    return answer(200, { version: serving.version, guesses });
  } catch (error) {
    return answer(400, { error: error instanceof Error ? error.message : String(error) });
  }
}

const options = new Command("deno run examples/replica.ts")
  .option("--listen <HOST:PORT>", "where deltas come in", parseAddress, parseAddress("127.0.0.1:0"))
  .option("--http <HOST:PORT>", "where to answer", parseAddress, parseAddress("127.0.0.1:0"))
  .option("--fleet-key-file <FILE>", "the fleet key; instead of AXIOM_FLEET_KEY")
  .configureOutput({ getOutHasColors: () => false, getErrHasColors: () => false })
  .parse(Deno.args, { from: "user" })
  .opts<{ listen: Address; http: Address; fleetKeyFile?: string }>();

let serving: Serving | undefined;
const listener = DeltaListener.listen({
  listen: options.listen,
  ring: new KeyRing({
    current: { file: options.fleetKeyFile, text: Deno.env.get("AXIOM_FLEET_KEY") },
    previous: { text: Deno.env.get("AXIOM_FLEET_KEY_PREVIOUS") },
  }),
  onRound: ({ version }, layers) => {
    // The live weights go on changing, fragment by fragment; answers come from a whole consensus.
    const copies = layers.map(({ shape, values }) => ({ shape, values: values.slice() }));
    serving = { version, layers: copies };
  },
});

const server = Deno.serve({ ...options.http, onListen: () => {} }, (request) => {
  const { pathname } = new URL(request.url);
  if (pathname === "/status" && request.method === "GET") {
    return answer(200, {
      version: serving?.version ?? 0,
      shapes: serving?.layers.map(({ shape }) => shape) ?? [],
      telemetry: listener.telemetry,
    });
  }
  if (pathname === "/predict" && request.method === "POST") return predict(request, serving);
  return answer(404, { error: "GET /status and POST /predict are what there is" });
});
console.log(`http ${formatAddress(server.addr as Deno.NetAddr)}`);
console.log(`listening ${formatAddress(listener.address)}`);

for (const signal of ["SIGINT", "SIGTERM"] as const) {
  Deno.addSignalListener(signal, async () => {
    await Promise.all([listener.close(), server.shutdown()]);
    Deno.exit(0);
  });
}
