/**
 * Sums by ONNX Runtime Web, on a GPU through WebGPU or in its WASM provider, in a worker of their own.
 *
 *                 open                 a request            failure, deadline, close()
 *     (no worker) ----> opening ----> ready <-----> busy ------> gone: the fallback kernel
 *                          |                                       sums from there on
 *                          +--> OrtUnavailable: no adapter, nodes placed elsewhere, wrong bits
 *
 * A sum that meets a failure is not lost: its sources are unchanged until it is finished, and so the
 * fallback kernel does what the worker has not delivered.
 *
 * @module
 */
import { checkExactness } from "./exactness.ts";
import type { Accumulation, F32Bytes, FoldKernel, KernelName } from "./kernel.ts";
import { defaultLogger, type KernelLogger } from "./kernel_logger.ts";
import type { OrtOpened, OrtProvider, OrtReply, OrtRequest } from "./ort_messages.ts";
import { invariant } from "../wire/errors.ts";

export type { KernelLogger } from "./kernel_logger.ts";
export type { OrtOpened, OrtProvider } from "./ort_messages.ts";

/** Bytes of a tensor on the device at a time, so that one result arrives in pieces that copy in a few ms. */
const CHUNK_BYTES = 32 << 20;
/** The first session takes 1-2 s; a cold disk a few more. */
const OPEN_MS = 20_000;
/** How long the worker may take to give its device back, in ms. */
const CLOSE_MS = 2_000;
/** Silence, in ms, after which a worker with work to do is given up. */
const SILENCE_MS = 20_000;

/** ONNX Runtime cannot be used as asked; the message says why. */
export class OrtUnavailable extends Error {
  /** The class by name, for logs. */
  override readonly name: string = "OrtUnavailable";
}

/** How {@link OrtKernel.open} may be called. */
export interface OrtOptions {
  /** Where ONNX Runtime computes. */
  readonly provider: OrtProvider;
  /** Does the sums after a failure; not closed by this kernel. */
  readonly fallback: FoldKernel;
  /** Bytes of a tensor handled at a time, at most; the adapter's limits lower it. Default 32 MiB. */
  readonly chunkBytes?: number;
  /** Milliseconds allowed for opening. Default 20 s. */
  readonly openMs?: number;
  /** Milliseconds without a word from the worker after which its work is given up. Default 20 s. */
  readonly silenceMs?: number;
  /** Where a failure is reported; the category tierfold, kernels when absent. */
  readonly logger?: KernelLogger;
}

type Outcome = "done" | "failed";

interface Pending {
  readonly settle: (outcome: Outcome) => void;
  readonly piece: (at: number, data: Uint8Array<ArrayBuffer>) => void;
}

/** Sums and products through ONNX Runtime, with a CPU kernel behind it. */
export class OrtKernel implements FoldKernel {
  readonly name: KernelName;
  /** What was opened. */
  readonly opened: OrtOpened;

  readonly #worker: Worker;
  readonly #fallback: FoldKernel;
  readonly #silenceMs: number;
  readonly #logger: KernelLogger;
  readonly #pending = new Map<number, Pending>();
  /** A sum that its owner forgot, as when a round is given up, must not stay on the device. */
  readonly #forgotten = new FinalizationRegistry<number>((sum) => {
    if (!this.#gone) this.#send({ type: "drop", sum });
  });
  #flushes = false;
  #proved = false;
  #next = 1;
  #gone = false;
  #failure: string | undefined;
  #closed: (() => void) | undefined;
  #deadline: ReturnType<typeof setTimeout> | undefined;

  private constructor(worker: Worker, opened: OrtOpened, options: OrtOptions) {
    this.name = `ort-${options.provider}`;
    this.opened = opened;
    this.#worker = worker;
    this.#fallback = options.fallback;
    this.#silenceMs = options.silenceMs ?? SILENCE_MS;
    this.#logger = options.logger ?? defaultLogger();
    worker.onmessage = (event: MessageEvent<OrtReply>) => this.#hear(event.data);
    worker.onerror = (event) => {
      event.preventDefault();
      this.#fail(event.message);
    };
  }

  /**
   * Starts the worker, opens the device, and compares it with the plain kernel.
   *
   * @throws {OrtUnavailable} when there is no adapter, when any node of the models was not placed on the
   * provider, when the results of normal numbers differ from the plain kernel's, or past the deadline.
   */
  static async open(options: OrtOptions): Promise<OrtKernel> {
    const openMs = options.openMs ?? OPEN_MS;
    const start = performance.now();
    const worker = new Worker(new URL("./ort_worker.ts", import.meta.url), { type: "module" });
    const request: OrtRequest = {
      type: "open",
      provider: options.provider,
      chunkBytes: options.chunkBytes ?? CHUNK_BYTES,
    };
    worker.postMessage(request);
    let kernel: OrtKernel | undefined;
    try {
      const opened = await opening(worker, openMs);
      kernel = new OrtKernel(worker, opened, options);
      await kernel.#prove(start + openMs - performance.now());
      return kernel;
    } catch (error) {
      if (kernel === undefined) worker.terminate();
      else await kernel.close();
      throw error;
    }
  }

  /** Compares this kernel with the plain one, within `ms`; see {@link OrtKernel.open} for the errors. */
  async #prove(ms: number): Promise<void> {
    const deadline = setTimeout(() => this.#fail("it was not ready in time"), ms);
    try {
      const found = await checkExactness(this);
      if (this.#failure !== undefined) throw new OrtUnavailable(this.#failure);
      if (!found.exact) throw new OrtUnavailable(`its results differ: ${found.difference}`);
      this.#flushes = found.flushesSubnormals;
      this.#proved = true;
    } finally {
      clearTimeout(deadline);
    }
  }

  get wholeFromBytes(): number {
    return this.#failure === undefined ? 0 : this.#fallback.wholeFromBytes;
  }

  get flushesSubnormals(): boolean {
    return this.#failure === undefined ? this.#flushes : this.#fallback.flushesSubnormals;
  }

  /** Why the fallback kernel has taken over, or undefined while the worker is in use. */
  get failure(): string | undefined {
    return this.#failure;
  }

  begin(out: F32Bytes): Accumulation {
    const all: F32Bytes[] = [];
    const sum = this.#next++;
    let useless = this.#gone;
    const accumulation: Accumulation = {
      add: async (sources) => {
        invariant(
          out.length % 4 === 0 && sources.every((source) => source.length === out.length),
          `a fold of ${sources.map((source) => source.length)} bytes into ${out.length}`,
        );
        all.push(...sources);
        if (useless || sources.length === 0 || out.length === 0) return;
        const outcome = await this.#request((id) => {
          const sent = sources.map(shareable);
          return [{ type: "add", id, sum, sources: sent.map(({ run }) => run) }, sent];
        });
        if (outcome === "failed") useless = true;
      },
      finish: async (factor) => {
        let delivered = 0;
        if (!useless && all.length > 0 && out.length > 0) {
          const outcome = await this.#request(
            (id) => [{ type: "finish", id, sum, factor }, []],
            (at, data) => {
              out.set(data, at);
              delivered = at + data.length;
            },
          );
          if (outcome === "done") return;
        }
        // Pieces come in order: what is in `out` beyond the last one has not been touched.
        const rest = this.#fallback.begin(out.subarray(delivered));
        await rest.add(all.map((source) => source.subarray(delivered)));
        await rest.finish(factor);
      },
    };
    this.#forgotten.register(accumulation, sum);
    return accumulation;
  }

  async scale(data: F32Bytes, factor: number): Promise<void> {
    invariant(data.length % 4 === 0, `scaling ${data.length} bytes`);
    if (data.length === 0) return;
    let delivered = 0;
    const outcome = await this.#request(
      (id) => {
        const sent = shareable(data);
        return [{ type: "scale", id, data: sent.run, factor }, [sent]];
      },
      (at, piece) => {
        data.set(piece, at);
        delivered = at + piece.length;
      },
    );
    if (outcome === "failed") await this.#fallback.scale(data.subarray(delivered), factor);
  }

  /** Destroys the device, as a reset of the driver would: a drill for what comes after. */
  destroyDevice(): void {
    if (!this.#gone) this.#send({ type: "destroy-device" });
  }

  async close(): Promise<void> {
    if (this.#gone) return;
    // A process that ends while a software device is at work can crash on its way out.
    let timer: ReturnType<typeof setTimeout> | undefined;
    await new Promise<void>((resolve) => {
      this.#closed = resolve;
      timer = setTimeout(resolve, CLOSE_MS);
      this.#send({ type: "close" });
    });
    clearTimeout(timer);
    this.#end();
  }

  #send(request: OrtRequest, transfer: Transferable[] = []): void {
    this.#worker.postMessage(request, transfer);
  }

  /** Sends what `make` builds, and waits for the worker's word on it or for its end. */
  #request(
    make: (id: number) => [OrtRequest, readonly Shared[]],
    piece: Pending["piece"] = () => {},
  ): Promise<Outcome> {
    if (this.#gone) return Promise.resolve("failed");
    const id = this.#next++;
    return new Promise<Outcome>((settle) => {
      this.#pending.set(id, { settle, piece });
      const [request, sent] = make(id);
      this.#send(request, sent.flatMap(({ transfer }) => transfer));
      if (this.#deadline === undefined) this.#watch();
    });
  }

  #hear(message: OrtReply): void {
    if (this.#gone) return;
    switch (message.type) {
      case "opened":
        return;
      case "closed":
        return this.#closed?.();
      case "failed":
        return this.#fail(message.reason);
      case "piece":
        this.#pending.get(message.id)?.piece(message.at, message.data);
        break;
      case "done": {
        const pending = this.#pending.get(message.id);
        this.#pending.delete(message.id);
        pending?.settle("done");
        break;
      }
    }
    this.#watch();
  }

  /** Starts the deadline anew while there is work, and clears it when there is none. */
  #watch(): void {
    clearTimeout(this.#deadline);
    // Opening has a deadline of its own.
    this.#deadline = this.#pending.size === 0 || !this.#proved ? undefined : setTimeout(
      () => this.#fail(`no word from its worker for ${this.#silenceMs} ms`),
      this.#silenceMs,
    );
  }

  #fail(reason: string): void {
    if (this.#gone) return;
    this.#failure = reason;
    this.#end();
    // Until it has been handed out, whoever opens it reports.
    if (!this.#proved) return;
    this.#logger.warn(
      "{kernel} on {adapter} failed: {reason}; this round and those after it are summed by {fallback}",
      {
        kernel: this.name,
        adapter: this.opened.adapter,
        reason,
        fallback: this.#fallback.name,
      },
    );
  }

  #end(): void {
    if (this.#gone) return;
    this.#gone = true;
    clearTimeout(this.#deadline);
    this.#worker.terminate();
    for (const { settle } of this.#pending.values()) settle("failed");
    this.#pending.clear();
  }
}

/** A run as a message carries it: shared memory as it is, anything else as a copy that moves. */
interface Shared {
  readonly run: F32Bytes;
  readonly transfer: Transferable[];
}

function shareable(run: F32Bytes): Shared {
  if (run.buffer instanceof SharedArrayBuffer) return { run, transfer: [] };
  const copy = run.slice() as Uint8Array<ArrayBuffer>;
  return { run: copy, transfer: [copy.buffer] };
}

/** Waits for the worker's first word. */
function opening(worker: Worker, openMs: number): Promise<OrtOpened> {
  const { promise, resolve, reject } = Promise.withResolvers<OrtOpened>();
  const deadline = setTimeout(
    () => reject(new OrtUnavailable(`ONNX Runtime was not ready within ${openMs} ms`)),
    openMs,
  );
  worker.onmessage = (event: MessageEvent<OrtReply>) => {
    if (event.data.type === "opened") resolve(event.data.opened);
    else if (event.data.type === "failed") reject(new OrtUnavailable(event.data.reason));
  };
  worker.onerror = (event) => {
    event.preventDefault();
    reject(new OrtUnavailable(event.message));
  };
  return promise.finally(() => clearTimeout(deadline));
}
