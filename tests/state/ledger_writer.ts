// Writes rounds into the ledger it is given, and prints how many were flushed.
import { Ledger } from "../../controller/state/ledger.ts";

const start = { worldSize: 1, outer: "{}", resumedStep: undefined };
const ledger = Ledger.open(Deno.args[0]!, start);
for (let round = 0;; round++) {
  const mass = 1;
  ledger.round({
    ...{ round, kind: "model", mass, durationMs: 1, step: round, sha256: "00" },
    hosts: [{ key: 0, name: "a", ranks: "0", mass }],
  });
  if (round % 20 !== 19) continue;
  ledger.flush();
  // A number whole in one write: what is cut off would read as another.
  Deno.stdout.writeSync(new TextEncoder().encode(`${round + 1}\n`));
  await new Promise((resolve) => setTimeout(resolve, 0));
}
