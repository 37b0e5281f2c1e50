/**
 * Chooses what sums: by name, or by measuring the kernels on this machine.
 *
 * @module
 */
import { type Adapter, findAdapter } from "./adapter.ts";
import { checkExactness } from "./exactness.ts";
import type { Accumulation, F32Bytes, FoldKernel, KernelName } from "./kernel.ts";
import { defaultLogger, type KernelLogger } from "./kernel_logger.ts";
import {
  CPU_LADDER,
  formatLadder,
  GPU_LADDER,
  MeasuringGround,
  pickKernels,
  type Rates,
  type Rung,
} from "./ladder.ts";
import { ladderKey, readLadder, writeLadder } from "./ladder_cache.ts";
import { OrtKernel } from "./ort.ts";
import { PlainKernel } from "./plain.ts";
import { type RunOwner, SimdKernel } from "./simd.ts";

export type { Rung } from "./ladder.ts";
export type { KernelLogger } from "./kernel_logger.ts";

/** All that `auto` may take at start, in ms, loading ONNX Runtime included. */
const BUDGET_MS = 2_800;

/** How {@link chooseKernel} may be called. */
export interface ChooseOptions {
  /** A kernel by name, or `auto`: measure and pick. */
  readonly request: "auto" | KernelName;
  /**
   * Bytes of one tensor from which a GPU kernel is used. When absent: everything where ort-webgpu or
   * ort-wasm was asked for by name, and what the measurement says for `auto`.
   */
  readonly gpuThresholdBytes?: number | undefined;
  /** Whose memory holds the frames. */
  readonly arena: RunOwner;
  /** A file in which `auto` keeps what it measured; without one it measures at every start. */
  readonly cacheFile?: string | undefined;
  /** Where the choice is reported; the category tierfold, kernels when absent. */
  readonly logger?: KernelLogger | undefined;
  /** For a report: measures everything that there is, software adapters too, without a time limit. */
  readonly measureAll?: boolean;
}

/** What was chosen and why, for logs and the status. */
export interface KernelDescription {
  /** What was asked for. */
  readonly requested: "auto" | KernelName;
  /** The kernel for tensors below {@link KernelDescription.gpuFromBytes}, and after a failure. */
  readonly cpu: KernelName;
  /** ONNX Runtime's kernel, while it is in use. */
  readonly gpu: KernelName | undefined;
  /** Bytes of one tensor from which `gpu` is used. */
  readonly gpuFromBytes: number | undefined;
  /** The adapter's description, or undefined where none was looked for or found. */
  readonly adapter: string | undefined;
  /** True when that adapter computes on the CPU. */
  readonly softwareAdapter: boolean;
  /** True when a kernel in use takes subnormals for zeros. */
  readonly flushesSubnormals: boolean;
  /** Why something that was asked for or expected is not in use; empty when nothing is amiss. */
  readonly notes: readonly string[];
  /** What was measured, and the pick for each size; empty when nothing was measured. */
  readonly rungs: readonly Rung[];
  /** True when `rungs` come from the file and not from this start. */
  readonly fromCache: boolean;
}

/** A kernel that hands every sum to the one chosen for its size. */
export interface ChosenKernel extends FoldKernel {
  /** The kernel that sums tensors of `bytes` bytes. */
  kernelFor(bytes: number): FoldKernel;
  /** The choice as it stands: it changes when a GPU fails. */
  describe(): KernelDescription;
}

class Chosen implements ChosenKernel {
  readonly #describe: Omit<KernelDescription, "gpu" | "flushesSubnormals">;

  constructor(
    readonly cpu: readonly FoldKernel[],
    readonly gpu: OrtKernel | undefined,
    describe: Omit<KernelDescription, "gpu" | "flushesSubnormals">,
  ) {
    this.#describe = describe;
  }

  /** The kernel for the largest tensors. */
  get name(): KernelName {
    return this.kernelFor(Infinity).name;
  }

  get flushesSubnormals(): boolean {
    return [...this.cpu, ...this.#inUse()].some((kernel) => kernel.flushesSubnormals);
  }

  get wholeFromBytes(): number {
    const { gpuFromBytes } = this.#describe;
    return this.#inUse().length > 0 && gpuFromBytes !== undefined ? gpuFromBytes : Infinity;
  }

  #inUse(): OrtKernel[] {
    return this.gpu === undefined || this.gpu.failure !== undefined ? [] : [this.gpu];
  }

  kernelFor(bytes: number): FoldKernel {
    const { gpuFromBytes, rungs } = this.#describe;
    const [gpu] = this.#inUse();
    if (gpu !== undefined && gpuFromBytes !== undefined && bytes >= gpuFromBytes) return gpu;
    const pick = (rungs.findLast((rung) => rung.bytes <= bytes) ?? rungs[0])?.pick;
    return this.cpu.find((kernel) => kernel.name === pick) ?? this.cpu[0]!;
  }

  begin(out: F32Bytes): Accumulation {
    return this.kernelFor(out.length).begin(out);
  }

  scale(data: F32Bytes, factor: number): void | Promise<void> {
    return this.kernelFor(data.length).scale(data, factor);
  }

  describe(): KernelDescription {
    const [gpu] = this.#inUse();
    const failure = this.gpu?.failure;
    return {
      ...this.#describe,
      gpu: gpu?.name,
      gpuFromBytes: gpu === undefined ? undefined : this.#describe.gpuFromBytes,
      flushesSubnormals: this.flushesSubnormals,
      notes: failure === undefined
        ? this.#describe.notes
        : [...this.#describe.notes, `${this.gpu!.name} failed: ${failure}`],
    };
  }

  async close(): Promise<void> {
    await Promise.all([...this.cpu, ...(this.gpu === undefined ? [] : [this.gpu])]
      .map((kernel) => kernel.close()));
  }
}

/** The CPU kernels that give plain's bits, the preferred one first. */
async function cpuKernels(home: RunOwner, notes: string[]): Promise<FoldKernel[]> {
  const plain = new PlainKernel();
  const simd = SimdKernel.create(home);
  const { exact, difference } = await checkExactness(simd);
  if (exact) return [simd, plain];
  notes.push(`simd is not used: its results differ from plain's: ${difference}`);
  return [plain];
}

/** Opens ONNX Runtime, or says in `notes` why not. */
async function openOrt(
  name: "ort-wasm" | "ort-webgpu",
  fallback: FoldKernel,
  notes: string[],
  logger: KernelLogger,
  openMs?: number,
): Promise<OrtKernel | undefined> {
  try {
    const provider = name === "ort-wasm" ? "wasm" : "webgpu";
    return await OrtKernel.open({
      provider,
      fallback,
      logger,
      ...(openMs === undefined ? {} : { openMs }),
    });
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    notes.push(`${name} is not used, ${fallback.name} sums instead: ${reason}`);
    return undefined;
  }
}

/**
 * The kernel that this process sums with. Whatever was asked for, it sums: what cannot be had is
 * replaced by a CPU kernel, with one line in the log. All choices give the same bits.
 */
export async function chooseKernel(options: ChooseOptions): Promise<ChosenKernel> {
  const logger = options.logger ?? defaultLogger();
  const notes: string[] = [];
  const kernel = options.request === "auto"
    ? await measured(options, notes, logger)
    : await named(options, options.request, notes, logger);
  for (const note of notes) logger.warn("{note}", { note });
  report(kernel.describe(), logger);
  return kernel;
}

/** Logs the choice in one line, and the table behind it in a line a size. */
function report(described: KernelDescription, logger: KernelLogger): void {
  const { requested, cpu, gpu, gpuFromBytes, adapter, rungs, fromCache } = described;
  if (gpu === undefined) {
    const why = described.softwareAdapter ? "software, not taken" : "not taken";
    logger.info("kernel {requested}: {cpu} sums all tensors{adapter}", {
      requested,
      cpu,
      adapter: adapter === undefined ? "" : `; adapter ${adapter}: ${why}`,
    });
  } else {
    logger.info(
      "kernel {requested}: {gpu} on {adapter} sums tensors of {gpuFromBytes} bytes and more, {cpu} others",
      { requested, gpu, adapter, gpuFromBytes, cpu },
    );
  }
  if (described.flushesSubnormals) {
    logger.warn("kernel {gpu} on {adapter} takes subnormals for zeros", { gpu, adapter });
  }
  if (rungs.length === 0) return;
  for (const row of formatLadder(rungs).split("\n")) {
    logger.info("{when}: {row}", { when: fromCache ? "measured earlier" : "measured", row });
  }
}

async function named(
  options: ChooseOptions,
  request: KernelName,
  notes: string[],
  logger: KernelLogger,
): Promise<Chosen> {
  const base = {
    requested: request,
    gpuFromBytes: undefined,
    adapter: undefined,
    softwareAdapter: false,
    rungs: [],
    fromCache: false,
  };
  if (request === "plain") {
    return new Chosen([new PlainKernel()], undefined, { ...base, cpu: "plain", notes });
  }
  const cpu = await cpuKernels(options.arena, notes);
  const cpuName = cpu[0]!.name;
  if (request === "simd") return new Chosen(cpu, undefined, { ...base, cpu: cpuName, notes });
  const gpu = await openOrt(request, cpu[0]!, notes, logger);
  return new Chosen(cpu, gpu, {
    ...base,
    cpu: cpuName,
    gpuFromBytes: gpu === undefined ? undefined : options.gpuThresholdBytes ?? 0,
    adapter: gpu?.opened.adapter,
    softwareAdapter: gpu?.opened.software ?? false,
    notes,
  });
}

/** `auto`: takes the ladder from the file where it has one, and measures where it has not. */
async function measured(
  options: ChooseOptions,
  notes: string[],
  logger: KernelLogger,
): Promise<Chosen> {
  const deadline = options.measureAll ? Infinity : performance.now() + BUDGET_MS;
  const adapter = await findAdapter();
  const usable = adapter !== undefined && !adapter.software;
  const cpu = await cpuKernels(options.arena, notes);
  const key = ladderKey(adapter?.name);
  const cached = await cachedLadder(options, key, logger);

  let rungs = cached ?? [];
  let gpu: OrtKernel | undefined;
  const wantsGpu = usable && (cached === undefined || options.gpuThresholdBytes !== undefined ||
    cached.some((rung) => rung.pick === "ort-webgpu"));
  if (wantsGpu) {
    const openMs = Math.min(20_000, deadline - performance.now());
    gpu = await openOrt("ort-webgpu", cpu[0]!, notes, logger, openMs);
  }
  if (cached === undefined) {
    rungs = await measure(options, cpu, gpu, adapter, deadline, notes, logger);
    // A GPU that could not be opened today may be there tomorrow: only a full ladder is kept.
    if (!usable || gpu !== undefined) await storeLadder(options, key, rungs, logger);
  }
  const measuredFrom = rungs.find((rung) => rung.pick === "ort-webgpu")?.bytes;
  const gpuFromBytes = options.gpuThresholdBytes ?? measuredFrom;
  if (gpu !== undefined && gpuFromBytes === undefined) {
    await gpu.close();
    gpu = undefined;
  }
  return new Chosen(cpu, gpu, {
    requested: "auto",
    cpu: cpu[0]!.name,
    gpuFromBytes: gpu === undefined ? undefined : gpuFromBytes,
    adapter: adapter?.name,
    softwareAdapter: adapter?.software ?? false,
    notes,
    rungs,
    fromCache: cached !== undefined,
  });
}

async function measure(
  options: ChooseOptions,
  cpu: readonly FoldKernel[],
  gpu: OrtKernel | undefined,
  adapter: Adapter | undefined,
  deadline: number,
  notes: string[],
  logger: KernelLogger,
): Promise<Rung[]> {
  const sizes = gpu !== undefined || options.measureAll ? GPU_LADDER : CPU_LADDER;
  const ground = new MeasuringGround(sizes.at(-1)!);
  const rates: Rates = new Map();
  for (const { name } of cpu) {
    const kernel = name === "simd" ? SimdKernel.create(ground.arena) : new PlainKernel();
    await ground.climb(kernel, sizes, rates, deadline);
  }
  if (gpu !== undefined) await ground.climb(gpu, sizes, rates, deadline);
  if (options.measureAll) {
    const others = gpu === undefined && adapter !== undefined
      ? ["ort-webgpu", "ort-wasm"] as const
      : ["ort-wasm"] as const;
    for (const name of others) {
      const kernel = await openOrt(name, cpu[0]!, notes, logger);
      if (kernel !== undefined) await ground.climb(kernel, sizes, rates, deadline);
      await kernel?.close();
    }
  }
  return pickKernels(rates, cpu.map(({ name }) => name), gpu?.name);
}

async function cachedLadder(
  options: ChooseOptions,
  key: string,
  logger: KernelLogger,
): Promise<Rung[] | undefined> {
  const file = options.cacheFile;
  if (file === undefined || options.measureAll) return undefined;
  try {
    return await readLadder(file, key);
  } catch (error) {
    logger.warn("reading measured kernels from {file} failed, measuring again: {error}", {
      file,
      error,
    });
    return undefined;
  }
}

async function storeLadder(
  options: ChooseOptions,
  key: string,
  rungs: readonly Rung[],
  logger: KernelLogger,
): Promise<void> {
  const file = options.cacheFile;
  if (file === undefined) return;
  try {
    await writeLadder(file, key, rungs);
  } catch (error) {
    logger.warn(
      "storing measured kernels in {file} failed, the next start measures again: {error}",
      { file, error },
    );
  }
}
