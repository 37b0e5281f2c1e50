/**
 * How a rank gets the consensus that the controller resumed.
 *
 * @module
 */
import type { RankClient } from "./client.ts";
import { normalizeTensors, type TensorLike } from "./tensors.ts";

/**
 * Asks for the consensus from which a controller with `--resume` goes on. All ranks call this together,
 * before their first Model round: it is a Control round of zeros with mass 0, which the controller answers
 * with the consensus of these shapes, if it has resumed one, and with its step as the mass.
 *
 * @param tensors As in a Model round; the consensus is written into them. Unchanged when there is none.
 * @returns The step, from 1: how many rounds had changed the consensus. 0 when there is none: the ranks
 *   start from what they have, which must be the same everywhere.
 * @throws As {@link RankClient.allReduce} does.
 */
export async function restoreConsensus(
  client: RankClient,
  tensors: readonly TensorLike[],
): Promise<number> {
  const own = normalizeTensors(tensors);
  const received = own.map(({ name, shape, data }) => ({
    name,
    shape,
    data: new Float32Array(data.length),
  }));
  const { mass } = await client.allReduce(received, { kind: "control", mass: 0 });
  if (mass > 0) own.forEach(({ data }, i) => data.set(received[i]!.data));
  return mass;
}
