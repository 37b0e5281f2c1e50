/**
 * The malicious client of the federated example. It knows the salt, and tries in every round what a
 * broken or hostile peer could; nothing of it may come through.
 *
 *     TIERFOLD_SALT=... deno run --allow-net --allow-env=TIERFOLD_SALT \
 *       examples/federated/malicious.ts URL CLIENTS ROUNDS SEED WAIT CLIENT
 *
 * @module
 */

import { encodeGarw, type GarwBlock, IntakeError, signedHeaders } from "../../mod.ts";
import { connect, keyOf, peerName, say, settingOf } from "./plan.ts";

const { url, rounds, rest: [number = ""] } = settingOf(Deno.args);
const client = connect(url, peerName(Number(number)));
const salt = Uint8Array.fromHex(Deno.env.get("TIERFOLD_SALT") ?? "");

/** Sends a block with any headers; says how it was refused, or nothing when it was not. */
async function put(
  path: string,
  body: Uint8Array<ArrayBuffer>,
  headers: Record<string, string>,
): Promise<string | undefined> {
  const response = await fetch(new URL(path, url), { method: "PUT", body, headers });
  const text = await response.text();
  return response.ok ? undefined : `${response.status} ${JSON.parse(text).error.code}`;
}

/** What it tries, by name: a layer's path and an honest block of it in, the refusal out. */
const attempts: Record<string, (path: string, block: GarwBlock) => Promise<string | undefined>> = {
  "NaN among the weights": (path, block) => {
    const values = block.values.slice();
    values[0] = NaN;
    return signed(path, { ...block, values });
  },
  "weights a million times too large": (path, block) =>
    signed(path, { ...block, values: block.values.map((value) => 1e6 * (value + 1)) }),
  "four thousand million samples": (path, block) =>
    signed(path, { ...block, numSamples: 4_000_000_000 }),
  "another shape": (path, block) => signed(path, { ...block, shape: [1, ...block.shape] }),
  "fewer values than the shape has": (path, block) =>
    signed(path, { ...block, values: block.values.subarray(1) }),
  "half a block": (path, block) => {
    const body = encodeGarw(block);
    return send(path, body.slice(0, body.length / 2));
  },
  "no block at all": (path) => send(path, new Uint8Array(100)),
  "another salt": (path, block) => {
    const body = encodeGarw(block);
    return put(path, body, signedHeaders({ method: "PUT", path, body }, new Uint8Array(16)));
  },
  "another body than the signed one": (path, block) => {
    const body = encodeGarw(block);
    const headers = signedHeaders({ method: "PUT", path, body }, salt);
    body[body.length - 10]! ^= 1;
    return put(path, body, headers);
  },
  "a request from ten minutes ago": (path, block) => {
    const body = encodeGarw(block);
    const then = Date.now() - 600_000;
    return put(path, body, signedHeaders({ method: "PUT", path, body }, salt, then));
  },
  "the same request twice": async (path, block) => {
    const body = encodeGarw({ ...block, shape: [1] });
    const headers = signedHeaders({ method: "PUT", path, body }, salt);
    await put(path, body, headers);
    return await put(path, body, headers);
  },
  "a layer that there is not": (path, block) => signed(path.replace(/[^/]+$/, "extra"), block),
};

function send(path: string, body: Uint8Array<ArrayBuffer>): Promise<string | undefined> {
  return put(path, body, signedHeaders({ method: "PUT", path, body }, salt));
}

function signed(path: string, block: GarwBlock): Promise<string | undefined> {
  return send(path, encodeGarw(block));
}

say({ kind: "ready" });
const refusals: Record<string, string> = {};
let made = 0;
let accepted = 0;
for (let round = 1; round <= rounds;) {
  try {
    const { layers, state } = await client.read(keyOf(round));
    if (state.kind === "Pending" || state.kind === "CollectingGradients") {
      const { name, shape = [] } = layers[0]!;
      const path = `/v1/passes/${keyOf(round)}/peers/${client.peer}/layers/${name}`;
      const count = shape.reduce((product, dim) => product * dim, 1);
      const block = { shape, values: new Float32Array(count), numSamples: 100 };
      for (const [what, attempt] of Object.entries(attempts)) {
        const refusal = await attempt(path, block);
        // The round may end in between; then everything is refused for that alone.
        if (refusal?.endsWith("PassAlreadyTerminal")) continue;
        made++;
        if (refusal === undefined) accepted++;
        refusals[what] = refusal ?? "accepted";
      }
    }
    round++;
  } catch (error) {
    if (!(error instanceof IntakeError && error.code === "PassNotFound")) throw error;
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}
say({ kind: "malice", attempts: made, accepted, refusals });
