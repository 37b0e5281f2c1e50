// Writes one checkpoint after another into the directory it is given, and prints each that is on the disk.
import { Checkpoints } from "../../controller/state/checkpoints.ts";
import { infoOf, tensorsOf } from "./pattern.ts";

const checkpoints = await Checkpoints.open(Deno.args[0]!, { keep: 2 });
for (let step = ((await checkpoints.steps())[0] ?? 0) + 1;; step++) {
  await checkpoints.write(tensorsOf(step), infoOf(step));
  console.log(step);
}
