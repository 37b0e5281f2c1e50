// A small training whose every bit is known: two hosts, three ranks, parameters and, in rounds of their
// own, buffers.
import type { ControllerSettings } from "../../controller/settings.ts";
import { SessionState, type StateOptions } from "../../controller/state/session_state.ts";
import type { RankClient } from "../../rank/client.ts";
import type { RankOptions } from "../../rank/options.ts";
import { restoreConsensus } from "../../rank/restore.ts";
import { Session } from "../cluster/session.ts";
import { soon } from "../cluster/waiting.ts";

export const HOSTS = [[0, 2], [1]];
const SHAPES = [[3, 5], [], [40_001]];

/** What a rank trains. */
export class Model {
  readonly parameters = SHAPES.map((shape) => ({
    shape,
    data: new Float32Array(shape.reduce((product, dim) => product * dim, 1)),
  }));
  readonly buffers = [new Float32Array(7)];

  /** Some work that depends on the rank, the step and every bit of the weights. */
  train(rank: number, step: number): void {
    for (const data of [...this.parameters.map(({ data }) => data), ...this.buffers]) {
      for (let i = 0; i < data.length; i++) {
        data[i] = data[i]! * 0.9 + Math.fround(Math.sin(step * 7.1 + rank * 3.3 + i * 0.7));
      }
    }
  }

  /** All values. */
  get values(): Float32Array[] {
    return [...this.parameters.map(({ data }) => data.slice()), this.buffers[0]!.slice()];
  }
}

export function stateOptions(options: Partial<StateOptions> = {}): StateOptions {
  return {
    worldSize: 3,
    outer: { name: "average" },
    checkpointEvery: 2,
    checkpointKeep: 3,
    resume: false,
    ...options,
  };
}

/** What a controller with this state is told. */
export function withState(options: Partial<StateOptions>): Partial<ControllerSettings> {
  return { state: (arena) => SessionState.open(stateOptions(options), arena) };
}

export function startSession(options: Partial<StateOptions>): Promise<Session> {
  return Session.start({ hosts: HOSTS, controller: withState(options) });
}

/** One rank's window: training, parameters, buffers, and now and then counts. */
async function window(client: RankClient, model: Model, step: number): Promise<void> {
  model.train(client.rank, step);
  await client.gatherCounts(step);
  await client.allReduce(model.parameters, { mass: 1 + client.rank });
  await client.allReduce(model.buffers, { mass: 1 });
}

/**
 * Trains in one session: every rank asks for a consensus first.
 *
 * @returns The step that the ranks went on from, and one model, checked to be everybody's.
 */
export async function train(
  session: Session,
  steps: number,
  options: Partial<RankOptions> = {},
): Promise<{ from: number; model: Model }> {
  const clients = await Promise.all([0, 1, 2].map((rank) => session.rank(rank, options)));
  const runs = await soon(
    "training",
    Promise.all(clients.map(async (client) => {
      const model = new Model();
      const from = await restoreConsensus(client, model.parameters);
      await restoreConsensus(client, model.buffers);
      for (let step = from; step < steps; step++) await window(client, model, step);
      return { from, model };
    })),
  );
  const [first] = runs;
  for (const { from, model } of runs) {
    if (from !== first!.from || !same(model.values, first!.model.values)) {
      throw new Error("the ranks differ");
    }
  }
  return first!;
}

/** Whether all bits are the same. */
export function same(a: readonly Float32Array[], b: readonly Float32Array[]): boolean {
  return a.length === b.length && a.every((list, i) => {
    const x = new Uint32Array(list.buffer, list.byteOffset, list.length);
    const y = new Uint32Array(b[i]!.buffer, b[i]!.byteOffset, b[i]!.length);
    return x.length === y.length && x.every((bits, at) => bits === y[at]);
  });
}
