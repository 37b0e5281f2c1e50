/**
 * The shortest use of Tierfold: a training loop of your own whose weights are averaged every few steps.
 *
 *     export TIERFOLD_SALT=$(openssl rand -hex 16)
 *     deno run --allow-net=127.0.0.1 "--allow-env=TIERFOLD_*" controller.ts --listen 127.0.0.1:7070 --world-size 2 &
 *     deno run --allow-net=127.0.0.1 "--allow-env=TIERFOLD_*" relay.ts --host here --ranks 0-1 \
 *       --world-size 2 --controller 127.0.0.1:7070 --listen 127.0.0.1:7071 &
 *     deno run --allow-net=127.0.0.1 "--allow-env=TIERFOLD_*" examples/own_loop.ts 127.0.0.1:7071 0 2 &
 *     deno run --allow-net=127.0.0.1 "--allow-env=TIERFOLD_*" examples/own_loop.ts 127.0.0.1:7071 1 2
 *
 * Rank 0 holds points of y = 3x + 1 left of zero, rank 1 some right of it. Both end with the same line.
 *
 * @module
 */

import { RankClient } from "../mod.ts";

const [relay = "", rank = "", worldSize = ""] = Deno.args;
const client = await RankClient.connect({
  relay,
  rank: Number(rank),
  worldSize: Number(worldSize),
  salt: Deno.env.get("TIERFOLD_SALT") ?? "",
});
const weights = new Float32Array(2); // your model's parameters
for (let round = 0; round < 50; round++) {
  const steps = trainLocally(weights); // a few steps of your optimizer on your own data
  await client.allReduce([weights], { mass: steps }); // in place, weighted by the work done
}
await client.close();
console.log(`rank ${rank}: y = ${weights[0]!.toFixed(3)}x + ${weights[1]!.toFixed(3)}`);

/** Gradient descent on y = ax + b; returns the number of steps made. */
function trainLocally(line: Float32Array): number {
  const side = Number(rank) % 2 === 0 ? -1 : 1;
  const steps = 5 + Number(rank);
  for (let step = 0; step < steps; step++) {
    const x = side * (step + 0.5) / steps;
    const error = line[0]! * x + line[1]! - (3 * x + 1);
    line[0]! -= 0.3 * error * x;
    line[1]! -= 0.3 * error;
  }
  return steps;
}
