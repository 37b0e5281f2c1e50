// An intake on a real port, for the tests of this folder.
import { serveHttp } from "../../observe/http.ts";
import { FederatedClient } from "../../controller/passes/client.ts";
import { Intake, type IntakeOptions } from "../../controller/passes/intake.ts";
import { PassService, type PassServiceOptions } from "../../controller/passes/service.ts";
import { type BlockShelf, BlockStore, MemoryShelf } from "../../controller/passes/store.ts";
import { PlainKernel } from "../../kernels/plain.ts";
import type { PassJson } from "../../controller/passes/json.ts";
import { SESSION_SALT as SALT } from "../vectors.ts";

export interface Rig {
  readonly url: string;
  readonly service: PassService;
  client(peer: string): FederatedClient;
}

export interface RigOptions extends Partial<IntakeOptions> {
  readonly shelf?: BlockShelf;
  readonly storeBytes?: number;
  readonly passes?: Partial<PassServiceOptions>;
}

/** Runs `test` against an intake on a free port, and takes everything down again. */
export async function withIntake(
  options: RigOptions,
  test: (rig: Rig) => Promise<void>,
): Promise<void> {
  const { shelf = new MemoryShelf(), storeBytes = 1024 ** 3, passes = {}, ...rest } = options;
  const store = await BlockStore.open(shelf, { maxBytes: storeBytes });
  const service = new PassService({ kernel: new PlainKernel(), store, ...passes });
  const intake = new Intake({ service, salt: SALT, ...rest });
  const server = serveHttp({ hostname: "127.0.0.1", port: 0 }, [(r) => intake.handle(r)]);
  const url = `http://127.0.0.1:${server.address.port}`;
  try {
    await test({
      url,
      service,
      client: (peer) => new FederatedClient({ url, salt: SALT, peer, timeoutMs: 20_000 }),
    });
  } finally {
    await server.close();
    await service.close();
  }
}

/** Name of the aggregated block of a pass that must be Complete. */
export function aggregatedCid({ key, state }: PassJson): string {
  if (state.kind !== "Complete") throw new Error(`pass ${key} is ${state.kind}, not Complete`);
  return state.cid;
}
