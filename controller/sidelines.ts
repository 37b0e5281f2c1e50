/**
 * The controller's ways in and out beside the rounds: federated passes over HTTP, and weight deltas.
 *
 * @module
 */
import { getLogger } from "@logtape/logtape";
import type { SlotReader } from "../frames/slot.ts";
import type { FoldKernel } from "../kernels/kernel.ts";
import { type Address, formatAddress } from "../transport/tcp.ts";
import { DTYPE_F32, layoutFrame } from "../wire/round_frame.ts";
import { type ConsensusView, DeltaPublisher, type PublisherOptions } from "./delta/publisher.ts";
import { type HttpHandler, type HttpServer, serveHttp } from "../observe/http.ts";
import { servePage } from "./page/page.ts";
import { DirectoryShelf } from "./passes/directory_shelf.ts";
import { Intake } from "./passes/intake.ts";
import type { PassPolicy } from "./passes/policy.ts";
import { type PassResult, PassService } from "./passes/service.ts";
import { BlockStore, MemoryShelf } from "./passes/store.ts";

const log = getLogger(["tierfold", "controller"]);

/** What of it is wanted; nothing unless asked for. */
export interface SidelineOptions {
  /** Where to serve HTTP. */
  readonly http?: Address | undefined;
  /** Told where HTTP is served, with the real port. */
  readonly onHttp?: ((address: Address) => void) | undefined;
  /** The session salt, 16 bytes: the key of the intake's requests. */
  readonly salt: Uint8Array;
  /** A directory for gradient blocks; in memory when there is none. */
  readonly passesStore?: string | undefined;
  /** Most bytes of gradient blocks kept. */
  readonly passesBytes: number;
  /** What passes do about contributors who are not trusted; nothing unless given. */
  readonly passPolicy?: PassPolicy | undefined;
  /** To whom deltas go. */
  readonly delta?: PublisherOptions | undefined;
}

/** A pass's result as a consensus, packed as a frame packs it. */
function consensusOf({ layers, numSamples }: PassResult): ConsensusView {
  const layout = layoutFrame(layers.map(({ shape }) => ({ dtype: DTYPE_F32, shape })));
  const memory = new Uint8Array(layout.length);
  layers.forEach(({ values }, i) => {
    const bytes = new Uint8Array(values.buffer, values.byteOffset, values.byteLength);
    memory.set(bytes, layout.tensors[i]!.at);
  });
  // Without samples the mean is uniform: everybody counted as one.
  return { kind: "model", mass: Math.max(numSamples, 1), memory, tensors: layout.tensors };
}

/** Federated passes and weight deltas, as far as they were asked for. */
export class Sidelines {
  /** The passes; undefined without HTTP. */
  readonly passes: PassService | undefined;
  /** The deltas; undefined without peers. */
  readonly deltas: DeltaPublisher | undefined;
  readonly #server: HttpServer | undefined;
  /** The last round of which a frame has come. */
  #round = -1;

  private constructor(
    passes: PassService | undefined,
    deltas: DeltaPublisher | undefined,
    server: HttpServer | undefined,
  ) {
    this.passes = passes;
    this.deltas = deltas;
    this.#server = server;
  }

  /**
   * Starts what was asked for.
   *
   * @param kernel Does the sums of the passes; it is the one of the rounds.
   * @param handlers What else answers over HTTP.
   * @throws {TransportError} when the HTTP address cannot be had.
   * @throws {Error} when a key file or the store's directory cannot be used.
   */
  static async start(
    options: SidelineOptions,
    kernel: FoldKernel,
    handlers: readonly HttpHandler[] = [],
  ): Promise<Sidelines> {
    const { http, delta, salt, passesStore, passesBytes, passPolicy } = options;
    const store = http && await BlockStore.open(
      passesStore === undefined ? new MemoryShelf() : await DirectoryShelf.open(passesStore),
      { maxBytes: passesBytes },
    );
    const deltas = delta && DeltaPublisher.start(delta);
    if (http === undefined || store === undefined) {
      return new Sidelines(undefined, deltas, undefined);
    }
    const service = new PassService({
      kernel,
      store,
      policy: passPolicy,
      onComplete: (result) => {
        if (result.spec.consensus === true) deltas?.offer(consensusOf(result));
      },
    });
    const intake = new Intake({
      service,
      salt,
      ...(deltas === undefined ? {} : { deltas: () => deltas.telemetry }),
    });
    try {
      const server = serveHttp(http, [(request) => intake.handle(request), servePage, ...handlers]);
      log.info("serving HTTP on {address}", { address: formatAddress(server.address) });
      options.onHttp?.(server.address);
      return new Sidelines(service, deltas, server);
    } catch (error) {
      await service.close();
      await deltas?.close(0);
      throw error;
    }
  }

  /** A frame of this round is coming: what can wait makes room. */
  roundBegins(round: number): void {
    if (round === this.#round) return;
    this.#round = round;
    this.deltas?.rounds.begin();
  }

  /** The result of this round has left; a frame of the next one may have come before. */
  roundIsOver(round: number): void {
    if (this.#round <= round) this.deltas?.rounds.end();
  }

  /**
   * Hands a round's result on.
   *
   * @returns Who reads the memory of the result on; it must not be written before that is done.
   */
  onResult(view: ConsensusView): SlotReader | undefined {
    return this.deltas?.offer(view);
  }

  /** Finishes what is under way, within seconds, and stops. */
  async close(): Promise<void> {
    await this.#server?.close();
    await this.passes?.close();
    await this.deltas?.close();
  }
}
