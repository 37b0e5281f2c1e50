/**
 * The default kernel: WASM SIMD over the shared memory that holds the frames.
 *
 * Several sources are added in one pass over memory, each element's additions in the order of the
 * sources, so that the bits are those of the plain kernel.
 *
 * @module
 */
import type { Bf16Bytes, Conversions } from "./convert.ts";
import type { Accumulation, F32Bytes, FoldKernel, KernelName } from "./kernel.ts";
import { SIMD_WASM } from "./simd_wasm.ts";
import { invariant } from "../wire/errors.ts";

/** What says which runs lie in `memory`; an {@link ./arena.ts Arena} is one. */
export interface RunOwner {
  /** The memory that the kernel works in. */
  readonly memory: WebAssembly.Memory;
  /** Whether `run` lies in `memory`, so that `run.byteOffset` is an address in it. */
  owns(run: Uint8Array<ArrayBufferLike>): boolean;
}

/** The exports of kernels/simd.wat: addresses and lengths in bytes. */
interface Exports {
  fold1(out: number, bytes: number, s0: number): void;
  fold2(out: number, bytes: number, s0: number, s1: number): void;
  fold3(out: number, bytes: number, s0: number, s1: number, s2: number): void;
  fold4(out: number, bytes: number, s0: number, s1: number, s2: number, s3: number): void;
  fold8(
    ...addresses: [number, number, number, number, number, number, number, number, number, number]
  ): void;
  scale(out: number, bytes: number, s: number, factor: number): void;
  firstNonFinite(s: number, bytes: number): number;
  firstNonFiniteBf16(s: number, bytes: number): number;
  bf16ToF32(out: number, bytes: number, s: number): void;
  scaleToBf16(out: number, bytes: number, s: number, factor: number): void;
  addBf16(out: number, bytes: number, s0: number): void;
  addBf16x4(out: number, bytes: number, s0: number, s1: number, s2: number, s3: number): void;
}

/** The most sources that one pass adds. */
const WIDEST = 8;
/** Runs outside the memory are copied in blocks that lie here together: they stay in the L2 cache. */
const SCRATCH_BYTES = 4 * 65_536;
const PAGE = 65_536;
/** Blocks start at multiples of this. */
const LINE = 64;

/** The largest number of sources, at most `wanted`, for which the module has a function. */
function arity(wanted: number): 1 | 2 | 3 | 4 | 8 {
  if (wanted >= 8) return 8;
  return wanted >= 4 ? 4 : wanted === 3 ? 3 : wanted === 2 ? 2 : 1;
}

/** out = +0.0 + the `width` inputs at the addresses `s`, a number that {@link arity} returned. */
function call(code: Exports, out: number, bytes: number, s: readonly number[], width: number) {
  switch (width) {
    case 1:
      return code.fold1(out, bytes, s[0]!);
    case 2:
      return code.fold2(out, bytes, s[0]!, s[1]!);
    case 3:
      return code.fold3(out, bytes, s[0]!, s[1]!, s[2]!);
    case 4:
      return code.fold4(out, bytes, s[0]!, s[1]!, s[2]!, s[3]!);
    default:
      return code.fold8(out, bytes, s[0]!, s[1]!, s[2]!, s[3]!, s[4]!, s[5]!, s[6]!, s[7]!);
  }
}

/** Recognises views of a memory that this thread received, also after the memory has grown. */
class MemoryOwner implements RunOwner {
  readonly #buffers = new WeakSet<ArrayBufferLike>();

  constructor(readonly memory: WebAssembly.Memory) {
    this.#buffers.add(memory.buffer);
  }

  owns(run: Uint8Array<ArrayBufferLike>): boolean {
    if (this.#buffers.has(run.buffer)) return true;
    // Growing replaces the buffer object; the new one is known by being the memory's own.
    if (run.buffer !== this.memory.buffer) return false;
    this.#buffers.add(run.buffer);
    return true;
  }
}

/** Sums, products and conversions in WASM SIMD, synchronous, at any alignment. */
export class SimdKernel implements FoldKernel, Conversions {
  readonly name: KernelName = "simd";
  readonly flushesSubnormals: boolean = false;
  readonly wholeFromBytes: number = Infinity;

  readonly #home: RunOwner;
  readonly #module: WebAssembly.Module;
  readonly #code: Exports;
  /** Where the inputs of the pass in hand lie. */
  readonly #addresses: number[] = new Array(WIDEST).fill(0);
  #outside: { code: Exports; bytes: Uint8Array<ArrayBufferLike> } | undefined;

  private constructor(home: RunOwner, module: WebAssembly.Module) {
    this.#home = home;
    this.#module = module;
    this.#code = SimdKernel.#instantiate(module, home.memory);
  }

  /**
   * A kernel for runs in `home`, the arena of this process or, in a Web Worker, the shared memory that
   * it was sent. Runs anywhere else are legal too and are copied through a scratch memory in blocks.
   *
   * @param module The result of {@link SimdKernel.compile}, to save a worker from compiling again.
   */
  static create(
    home: RunOwner | WebAssembly.Memory,
    module: WebAssembly.Module = SimdKernel.compile(),
  ): SimdKernel {
    return new SimdKernel(
      home instanceof WebAssembly.Memory ? new MemoryOwner(home) : home,
      module,
    );
  }

  /** The compiled module, which `postMessage` can carry to a worker. */
  static compile(): WebAssembly.Module {
    return new WebAssembly.Module(Uint8Array.from(atob(SIMD_WASM), (char) => char.charCodeAt(0)));
  }

  static #instantiate(module: WebAssembly.Module, memory: WebAssembly.Memory): Exports {
    return new WebAssembly.Instance(module, { env: { memory } }).exports as unknown as Exports;
  }

  begin(out: F32Bytes): Accumulation {
    let started = false;
    return {
      add: (sources) => {
        let at = 0;
        while (at < sources.length) {
          // A sum in progress is the first input of the pass that adds to it.
          const width = arity(sources.length - at + (started ? 1 : 0));
          this.#fold(out, width, sources, started ? at - 1 : at, started);
          at += started ? width - 1 : width;
          started = true;
        }
      },
      finish: (factor) => {
        if (!started) out.fill(0);
        if (factor !== undefined) this.scale(out, factor);
      },
    };
  }

  scale(data: F32Bytes, factor: number): void {
    this.scaleCopy(data, data, factor);
  }

  scaleCopy(dst: F32Bytes, src: F32Bytes, factor: number): void {
    invariant(
      dst.length === src.length && src.length % 4 === 0,
      `scaling ${src.length} bytes into ${dst.length}`,
    );
    if (this.#home.owns(dst) && this.#home.owns(src)) {
      this.#code.scale(dst.byteOffset, src.length, src.byteOffset, factor);
    } else {
      this.#byBlocks(
        dst,
        [src],
        1,
        (code, out, length) => code.scale(out, length, 0, factor),
      );
    }
  }

  firstNonFinite(run: F32Bytes): number {
    return this.#first(run, 4, "firstNonFinite");
  }

  firstNonFiniteBf16(run: Bf16Bytes): number {
    return this.#first(run, 2, "firstNonFiniteBf16");
  }

  bf16ToF32(dst: F32Bytes, src: Bf16Bytes): void {
    invariant(
      src.length % 2 === 0 && dst.length === src.length * 2,
      `widening ${src.length} bytes of bf16 into ${dst.length} bytes of f32`,
    );
    if (this.#home.owns(dst) && this.#home.owns(src)) {
      this.#code.bf16ToF32(dst.byteOffset, src.length, src.byteOffset);
    } else {
      this.#byBlocks(dst, [src], 2, (code, out, length) => code.bf16ToF32(out, length, 0));
    }
  }

  scaleToBf16(dst: Bf16Bytes, src: F32Bytes, factor: number): void {
    invariant(
      src.length % 4 === 0 && dst.length * 2 === src.length,
      `narrowing ${src.length} bytes of f32 into ${dst.length} bytes of bf16`,
    );
    if (this.#home.owns(dst) && this.#home.owns(src)) {
      this.#code.scaleToBf16(dst.byteOffset, src.length, src.byteOffset, factor);
    } else {
      this.#byBlocks(
        dst,
        [src],
        0.5,
        (code, out, length) => code.scaleToBf16(out, length, 0, factor),
      );
    }
  }

  /**
   * sum = sum + sources[0] + sources[1] ..., in this order; all runs lie in the kernel's memory.
   *
   * @param sum f32 values.
   * @param sources bf16 runs of half its length each.
   */
  addBf16(sum: F32Bytes, sources: readonly Bf16Bytes[]): void {
    const length = sum.length / 2;
    for (const source of sources) {
      invariant(
        source.length === length && this.#home.owns(source) && this.#home.owns(sum),
        `adding ${source.length} bytes of bf16 to ${sum.length} bytes of f32`,
      );
    }
    const out = sum.byteOffset;
    let at = 0;
    for (; at + 4 <= sources.length; at += 4) {
      const [a, b, c, d] = [0, 1, 2, 3].map((i) => sources[at + i]!.byteOffset);
      this.#code.addBf16x4(out, length, a!, b!, c!, d!);
    }
    for (; at < sources.length; at++) this.#code.addBf16(out, length, sources[at]!.byteOffset);
  }

  close(): Promise<void> {
    this.#outside = undefined;
    return Promise.resolve();
  }

  #first(
    run: Uint8Array<ArrayBufferLike>,
    width: 2 | 4,
    search: "firstNonFinite" | "firstNonFiniteBf16",
  ): number {
    invariant(run.length % width === 0, `looking for NaN in ${run.length} bytes, ${width} a value`);
    if (this.#home.owns(run)) {
      const at = this.#code[search](run.byteOffset, run.length);
      return at === -1 ? -1 : (at >>> 0) / width;
    }
    const { code, bytes } = this.#scratch();
    for (let at = 0; at < run.length; at += SCRATCH_BYTES) {
      const block = run.subarray(at, at + SCRATCH_BYTES);
      bytes.set(block);
      const found = code[search](0, block.length);
      if (found !== -1) return (at + found) / width;
    }
    return -1;
  }

  /**
   * out = +0.0 + `width` inputs, a number that {@link arity} returned: the sources from `first` on, the
   * first one replaced by `out` itself when `onto` is set.
   */
  #fold(
    out: F32Bytes,
    width: number,
    sources: readonly F32Bytes[],
    first: number,
    onto: boolean,
  ): void {
    // Tiny tensors pay for every step taken here: no closures, no lists, no message ahead of need.
    const s = this.#addresses;
    let inside = this.#home.owns(out);
    for (let i = 0; i < width; i++) {
      const input = onto && i === 0 ? out : sources[first + i]!;
      if (input.length !== out.length || out.length % 4 !== 0) {
        invariant(false, `a fold of ${input.length} bytes into ${out.length}`);
      }
      s[i] = input.byteOffset;
      inside &&= this.#home.owns(input);
    }
    if (inside) {
      call(this.#code, out.byteOffset, out.length, s, width);
    } else {
      const inputs = sources.slice(onto ? first + 1 : first, first + width);
      if (onto) inputs.unshift(out);
      this.#byBlocks(out, inputs, 1, (code, at, length, block) => {
        const addresses = inputs.map((_, i) => i * block);
        call(code, at, length, addresses, width);
      });
    }
  }

  /**
   * Runs `step` block by block over copies in the scratch memory, for runs outside the kernel's own:
   * source i at i x block, and behind the sources the result, `growth` times as long as they are.
   */
  #byBlocks(
    out: Uint8Array<ArrayBufferLike>,
    sources: readonly Uint8Array<ArrayBufferLike>[],
    growth: 0.5 | 1 | 2,
    step: (code: Exports, out: number, length: number, block: number) => void,
  ): void {
    const { code, bytes } = this.#scratch();
    const length = out.length / growth;
    const share = SCRATCH_BYTES / (sources.length + Math.max(growth, 1));
    const block = share - share % LINE;
    const result = sources.length * block;
    for (let at = 0; at < length; at += block) {
      const n = Math.min(block, length - at);
      sources.forEach((source, i) => bytes.set(source.subarray(at, at + n), i * block));
      step(code, result, n, block);
      out.set(bytes.subarray(result, result + n * growth), at * growth);
    }
  }

  /** A second, small memory of this kernel alone: threads share the first one. */
  #scratch(): { code: Exports; bytes: Uint8Array<ArrayBufferLike> } {
    if (this.#outside === undefined) {
      const pages = SCRATCH_BYTES / PAGE;
      // The module wants a memory of the kind that it imports: shared, with at most this maximum.
      const memory = new WebAssembly.Memory({ initial: pages, maximum: pages, shared: true });
      this.#outside = {
        code: SimdKernel.#instantiate(this.#module, memory),
        bytes: new Uint8Array(memory.buffer),
      };
    }
    return this.#outside;
  }
}
