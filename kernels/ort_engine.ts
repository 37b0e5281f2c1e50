/**
 * The sums as ONNX Runtime does them, inside the worker of {@link ./ort.ts}: sessions, tensors, chunks.
 * Calls must not overlap: overlapping runs hang ONNX Runtime or corrupt its memory.
 *
 * @module
 */
import type * as Ort from "onnxruntime-web/webgpu";
import { describeAdapter } from "./adapter.ts";
import type { F32Bytes } from "./kernel.ts";
import { foldModel, NAMES, scaleModel } from "./onnx_model.ts";
import type { OrtOpened, OrtProvider } from "./ort_messages.ts";
import { placementsIn, withLogCaptured } from "./ort_placement.ts";

/** ONNX Runtime's module. */
export type Runtime = typeof Ort;
type Tensor = Ort.Tensor;

/** How ONNX Runtime's log calls the provider that each kernel claims to be. */
const PROVIDERS: Record<OrtProvider, string> = {
  wasm: "CPUExecutionProvider",
  webgpu: "WebGpuExecutionProvider",
};

/** The numbers of sources for which there is a model, largest first. */
const WIDTHS = [8, 4, 3, 2, 1];

/** Where tensors live, which is all that differs between the providers. */
interface Place {
  readonly adapter: string;
  readonly software: boolean;
  /** The most bytes that one tensor may have. */
  readonly limit: number;
  /** A tensor with the values of `bytes`, valid until the same slot is uploaded to again. */
  upload(slot: number, bytes: F32Bytes): Tensor;
  /** The values of a result, in memory of their own. */
  read(tensor: Tensor): Promise<Uint8Array<ArrayBuffer>>;
  close(): void;
}

/** Slots beyond those of the widest model. */
const ZERO_SLOT = WIDTHS[0]!;
const FACTOR_SLOT = ZERO_SLOT + 1;

/** Tensors in GPU buffers: uploaded by us, without passing through ONNX Runtime's own memory. */
class GpuPlace implements Place {
  readonly adapter: string;
  readonly software: boolean;
  readonly limit: number;
  readonly #slots: (GPUBuffer | undefined)[] = [];

  constructor(readonly ort: Runtime, readonly device: GPUDevice) {
    const { name, software } = describeAdapter(device.adapterInfo);
    this.adapter = name;
    this.software = software;
    const { limits } = device;
    this.limit = Math.min(limits.maxStorageBufferBindingSize, limits.maxBufferSize);
  }

  upload(slot: number, bytes: F32Bytes): Tensor {
    // Storage bindings are read in vectors of 16 bytes.
    const wanted = Math.ceil(bytes.length / 16) * 16;
    let buffer = this.#slots[slot];
    if (buffer === undefined || buffer.size < wanted) {
      buffer?.destroy();
      buffer = this.device.createBuffer({
        size: wanted,
        usage: GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_DST | GPUBufferUsage.COPY_SRC,
      });
      this.#slots[slot] = buffer;
    }
    this.device.queue.writeBuffer(buffer, 0, bytes as Uint8Array<ArrayBuffer>);
    return this.ort.Tensor.fromGpuBuffer(buffer, {
      dataType: "float32",
      dims: [bytes.length / 4],
    });
  }

  async read(tensor: Tensor): Promise<Uint8Array<ArrayBuffer>> {
    const data = await tensor.getData(true) as Float32Array<ArrayBuffer>;
    return new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
  }

  close(): void {
    for (const buffer of this.#slots) buffer?.destroy();
    this.device.destroy();
  }
}

/** Tensors in ordinary memory. */
class CpuPlace implements Place {
  readonly adapter = "wasm";
  readonly software = true;
  /** ONNX Runtime copies every input into its own memory, which never shrinks. */
  readonly limit = 2 ** 28;

  constructor(readonly ort: Runtime) {}

  upload(_slot: number, bytes: F32Bytes): Tensor {
    const values = bytes.byteOffset % 4 === 0
      ? new Float32Array(bytes.buffer, bytes.byteOffset, bytes.length / 4)
      : new Float32Array(Uint8Array.from(bytes).buffer);
    return new this.ort.Tensor("float32", values, [values.length]);
  }

  read(tensor: Tensor): Promise<Uint8Array<ArrayBuffer>> {
    const data = tensor.data as Float32Array<ArrayBuffer>;
    return Promise.resolve(new Uint8Array(data.buffer, data.byteOffset, data.byteLength));
  }

  close(): void {}
}

/**
 * Creates a session and checks where its nodes were placed.
 *
 * @throws {Error} when any node is not on the provider.
 */
export async function createPlaced(
  ort: Runtime,
  model: Uint8Array<ArrayBuffer>,
  provider: OrtProvider,
): Promise<Ort.InferenceSession> {
  const create = (logSeverityLevel: 0 | 3) =>
    ort.InferenceSession.create(model, {
      executionProviders: [provider],
      logSeverityLevel,
      preferredOutputLocation: provider === "webgpu" ? "gpu-buffer" : "cpu",
    });
  // Only a session that logs everything reports placements, and it would go on to log every run: it is
  // made to be read, and the one that works is made again, from the same bytes, to log errors only.
  const { result: verbose, log } = await withLogCaptured(() => create(0));
  try {
    const placements = placementsIn(log);
    if (placements.length !== 1 || placements[0] !== PROVIDERS[provider]) {
      throw new Error(
        `ONNX Runtime placed nodes on ${placements.join(", ") || "providers it did not name"}, ` +
          `expected all on ${PROVIDERS[provider]}`,
      );
    }
    return await create(3);
  } finally {
    // Released last: with its last session, ONNX Runtime gives up the device.
    await verbose.release();
  }
}

/** One sum in progress: the tensors that hold it, one a chunk. */
interface Sum {
  readonly length: number;
  readonly chunks: (Tensor | undefined)[];
}

/** Sums and products through ONNX Runtime, chunk by chunk. */
export class Engine {
  /** What was opened. */
  readonly opened: OrtOpened;
  readonly #place: Place;
  readonly #folds: ReadonlyMap<number, Ort.InferenceSession>;
  readonly #scale: Ort.InferenceSession;
  readonly #zero: Tensor;
  readonly #chunk: number;
  readonly #sums = new Map<number, Sum>();

  private constructor(
    place: Place,
    folds: ReadonlyMap<number, Ort.InferenceSession>,
    scale: Ort.InferenceSession,
    provider: OrtProvider,
    chunkBytes: number,
  ) {
    this.#place = place;
    this.#folds = folds;
    this.#scale = scale;
    this.#zero = place.upload(ZERO_SLOT, new Uint8Array(4));
    this.#chunk = Math.floor(Math.min(chunkBytes, place.limit) / 16) * 16;
    this.opened = {
      adapter: place.adapter,
      software: place.software,
      chunkBytes: this.#chunk,
      placements: [PROVIDERS[provider]],
    };
  }

  /**
   * Loads ONNX Runtime, takes the device and creates all sessions.
   *
   * @param broken Called when the device is lost or reports an error that no call rejects with.
   * @throws {Error} when there is no adapter, or nodes were placed elsewhere.
   */
  static async open(
    provider: OrtProvider,
    chunkBytes: number,
    broken: (reason: string) => void,
  ): Promise<Engine> {
    const ort = await import("onnxruntime-web/webgpu");
    ort.env.wasm.numThreads = 1;
    const folds = new Map<number, Ort.InferenceSession>();
    for (const width of WIDTHS) {
      folds.set(width, await createPlaced(ort, foldModel(width), provider));
    }
    const scale = await createPlaced(ort, scaleModel(), provider);
    if (provider === "wasm") {
      return new Engine(new CpuPlace(ort), folds, scale, provider, chunkBytes);
    }

    const device = await ort.env.webgpu.device as GPUDevice;
    device.lost.then(({ reason, message }) =>
      broken(`the GPU device was lost (${[reason, message].filter(Boolean).join(": ")})`)
    );
    device.addEventListener(
      "uncapturederror",
      (event) => broken((event as GPUUncapturedErrorEvent).error.message),
    );
    return new Engine(new GpuPlace(ort, device), folds, scale, provider, chunkBytes);
  }

  /** Adds `sources`, one after another, to the sum called `id`, starting it where it is new. */
  async add(id: number, sources: readonly F32Bytes[]): Promise<void> {
    const first = sources[0];
    if (first === undefined) return;
    let sum = this.#sums.get(id);
    if (sum === undefined) {
      sum = { length: first.length, chunks: [] };
      this.#sums.set(id, sum);
    }
    for (let at = 0, c = 0; at < sum.length; at += this.#chunk, c++) {
      const end = Math.min(at + this.#chunk, sum.length);
      let done = 0;
      while (done < sources.length) {
        const width = WIDTHS.find((width) => width <= sources.length - done)!;
        const before = sum.chunks[c];
        const feeds: Record<string, Tensor> = { [NAMES.before]: before ?? this.#zero };
        for (let i = 0; i < width; i++) {
          feeds[NAMES.source(i)] = this.#place.upload(i, sources[done + i]!.subarray(at, end));
        }
        const results = await this.#folds.get(width)!.run(feeds);
        sum.chunks[c] = results[NAMES.sum]!;
        before?.dispose();
        done += width;
      }
    }
  }

  /**
   * Ends a sum, scaled where a factor is given. When this settles, ONNX Runtime has done its part and
   * may be called again; `piece` receives the result's pieces in order, until `delivered` settles.
   */
  async finish(
    id: number,
    factor: number | undefined,
    piece: (at: number, data: Uint8Array<ArrayBuffer>) => void,
  ): Promise<{ delivered: Promise<void> }> {
    const sum = this.#sums.get(id)!;
    this.#sums.delete(id);
    let delivered = Promise.resolve();
    for (const [c, tensor] of sum.chunks.entries()) {
      const result = factor === undefined ? tensor! : await this.#product(tensor!, factor);
      if (result !== tensor) tensor!.dispose();
      // One chunk of a sum is read while the next is computed, so that results need no more room.
      await delivered;
      delivered = this.#deliver(result, c * this.#chunk, piece);
      // Awaited in the next turn or by the caller; until then a rejection must not go unheard.
      delivered.catch(() => {});
    }
    return { delivered };
  }

  /** Multiplies `data` by `factor`; delivers as {@link Engine.finish} does. */
  async scale(
    data: F32Bytes,
    factor: number,
    piece: (at: number, data: Uint8Array<ArrayBuffer>) => void,
  ): Promise<{ delivered: Promise<void> }> {
    let delivered = Promise.resolve();
    for (let at = 0; at < data.length; at += this.#chunk) {
      const input = this.#place.upload(0, data.subarray(at, at + this.#chunk));
      const result = await this.#product(input, factor);
      await delivered;
      delivered = this.#deliver(result, at, piece);
      delivered.catch(() => {});
    }
    return { delivered };
  }

  async #deliver(
    result: Tensor,
    at: number,
    piece: (at: number, data: Uint8Array<ArrayBuffer>) => void,
  ): Promise<void> {
    piece(at, await this.#place.read(result));
    result.dispose();
  }

  /** Forgets the sum called `id`, if there is one. */
  drop(id: number): void {
    for (const tensor of this.#sums.get(id)?.chunks ?? []) tensor?.dispose();
    this.#sums.delete(id);
  }

  /** Gives the device up; whatever runs on it fails. */
  close(): void {
    this.#place.close();
  }

  async #product(value: Tensor, factor: number): Promise<Tensor> {
    const bytes = new Uint8Array(Float32Array.of(factor).buffer);
    const results = await this.#scale.run({
      [NAMES.value]: value,
      [NAMES.factor]: this.#place.upload(FACTOR_SLOT, bytes),
    });
    return results[NAMES.product]!;
  }
}
