/**
 * The rank's side of a round: one frame up, one frame down.
 *
 * @module
 */
import { Arena } from "../kernels/arena.ts";
import { SimdKernel } from "../kernels/simd.ts";
import { FrameSlot } from "../frames/slot.ts";
import { receiveFrame } from "../frames/receive.ts";
import { checkFoldable, schemaDifference } from "../fold/schema.ts";
import { RoundTracer } from "../observe/tracing.ts";
import { TransportError } from "../transport/connection.ts";
import { Link } from "../transport/link.ts";
import { InvariantError, WireError } from "../wire/errors.ts";
import { PROTOCOL_BF16, PROTOCOL_F32, SEALED } from "../wire/handshake.ts";
import { CATCH_UP, CATCH_UP_BYTES, decodeCatchUp } from "../wire/catch_up.ts";
import { decodeLength, encodeLength, LENGTH_BYTES } from "../wire/length.ts";
import { frameCeilingFor, TAG_BYTES } from "../wire/limits.ts";
import { Tag64 } from "../wire/mac.ts";
import { isRefusal } from "../wire/refusal.ts";
import {
  DTYPE_BF16,
  DTYPE_F32,
  encodeFrameHeaders,
  type FrameHeader,
  type RoundKind,
  type TensorHeader,
} from "../wire/round_frame.ts";
import { LoopTagger, type Tagger } from "../workers/tagger.ts";
import { type ConnectionSeals, greet, refusal } from "./greeting.ts";
import { checkOptions, type RankOptions, type RankSettings } from "./options.ts";
import { layoutFor, normalizeTensors, type Tensor, type TensorLike } from "./tensors.ts";

/** Bytes scaled, hashed and written at a time: small enough to stay in the second-level cache. */
const CHUNK_BYTES = 512 * 1024;
/** How long the reason for a broken connection may take to arrive. */
const REASON_MS = 2_000;

/** What a round came to. */
export interface RoundResult {
  /** Whether it was an average or a sum. */
  kind: RoundKind;
  /** The total mass that was accepted; 0 for a Model round means that nothing was changed. */
  mass: number;
  /** Bytes sent to the relay. */
  bytesUp: number;
  /** Bytes received from it. */
  bytesDown: number;
  /** How long the round took, in milliseconds. */
  ms: number;
}

/** The consensus that a rank got when it was let in. */
export interface CaughtUp {
  /** How many rounds the session had had. */
  rounds: number;
  /** The mass of the round that it came out of. */
  mass: number;
}

/** A rank's connection to the relay of its host. One round at a time. */
export class RankClient {
  /** This rank's number. */
  readonly rank: number;
  /** How many ranks the session has. */
  readonly worldSize: number;

  readonly #link: Link;
  readonly #salt: Uint8Array;
  readonly #tagger: Tagger;
  readonly #tracer: RoundTracer | undefined;
  readonly #roundTimeoutMs: number;
  readonly #version: number;
  readonly #seal: boolean;
  #seals: ConnectionSeals | undefined;
  readonly #arena = new Arena();
  readonly #kernel = SimdKernel.create(this.#arena);
  readonly #slot = new FrameSlot(this.#arena);
  #layout: FrameHeader | undefined;
  #consensus: CaughtUp | undefined;
  #round = 0;
  #busy = false;
  #failed: Error | undefined;

  private constructor(link: Link, settings: RankSettings) {
    this.#link = link;
    this.#salt = settings.salt;
    this.#tagger = new LoopTagger(settings.salt);
    this.#tracer = RoundTracer.of(settings.salt);
    this.#version = settings.wire === "bf16" ? PROTOCOL_BF16 : PROTOCOL_F32;
    this.#seal = settings.seal;
    this.rank = settings.rank;
    this.worldSize = settings.worldSize;
    this.#roundTimeoutMs = settings.roundTimeoutMs;
  }

  /**
   * Connects to the relay and takes this rank's place, trying again until the relay is there.
   *
   * @throws {RangeError} when an option is not usable.
   * @throws {TransportError} when the relay cannot be reached in time, or refuses this rank.
   * @throws {WireError} when what answers is not a relay.
   */
  static async connect(options: RankOptions): Promise<RankClient> {
    const settings = checkOptions(options);
    const { rank, joinTimeoutMs: deadlineMs } = settings;
    const connection = await settings.network.connect(settings.relay, `the relay of rank ${rank}`, {
      deadlineMs,
    });
    const client = new RankClient(new Link(connection), settings);
    try {
      await client.#link.within(
        deadlineMs,
        `rank ${rank} waits to be let in`,
        () => client.#join(settings.catchUp),
      );
    } catch (error) {
      client.#link.close();
      throw error;
    }
    return client;
  }

  /**
   * The consensus that the tensors of the option `catchUp` were filled with; undefined without that option,
   * and where the session had had no round yet, which leaves the tensors as they were.
   */
  get consensus(): CaughtUp | undefined {
    return this.#consensus;
  }

  /**
   * Averages (Model) or sums (Control) tensors over all ranks, in place.
   *
   * A Model round multiplies each rank's tensors by its `mass` on the way up and divides the sum once by
   * the mass that was accepted; when that is 0, nothing is changed. Every rank gives the same tensors in
   * the same order, and every rank that finishes the round gets the same bits.
   *
   * @param tensors f32 values; results are written into them. Unchanged when this throws.
   * @param options.kind "model" when left out.
   * @param options.mass What this rank's work weighs, 1 when left out; see {@link gammaMass}. A Control
   *   round sends its tensors as they are, whatever their mass.
   * @throws {RangeError} when a tensor or the mass is not usable; nothing was sent.
   * @throws {TransportError} when the relay closes, breaks or takes too long; the client is closed.
   * @throws {WireError} when an answer is not authentic or does not fit; the client is closed.
   */
  async allReduce(
    tensors: readonly TensorLike[],
    options: { kind?: RoundKind; mass?: number } = {},
  ): Promise<RoundResult> {
    const { kind = "model", mass = 1 } = options;
    if (!(Number.isFinite(mass) && mass >= 0)) {
      throw new RangeError(
        `sending round ${this.#round}: mass ${mass} (${typeof mass}) is not a finite number >= 0`,
      );
    }
    const own = normalizeTensors(tensors);
    if (this.#busy) {
      throw new RangeError(
        `rank ${this.rank} starts a round while round ${this.#round} is under way; await it first`,
      );
    }
    if (this.#failed) throw this.#failed;
    const dtype = kind === "model" && this.#version === PROTOCOL_BF16 ? DTYPE_BF16 : DTYPE_F32;
    const layout = layoutFor(own, dtype, this.#layout);
    this.#layout = layout;
    this.#busy = true;
    const round = this.#round;
    const startMs = this.#tracer && performance.timeOrigin + performance.now();
    try {
      const result = await this.#runRound(own, { ...layout, kind, weight: mass });
      this.#trace(round, startMs, { "tierfold.mass": mass, "tierfold.total_mass": result.mass });
      return result;
    } catch (error) {
      const failure = error instanceof Error ? error : new Error(String(error));
      this.#trace(round, startMs, { "tierfold.mass": mass }, failure.message);
      this.#failed = failure;
      this.#link.close();
      throw failure;
    } finally {
      this.#busy = false;
    }
  }

  /**
   * Copies tensors from one rank to all others: a Control round in which the others send zeros.
   *
   * @param tensors On `root` the values to send; elsewhere they are overwritten.
   * @param root The rank whose values count.
   * @throws {RangeError} when `root` is not a rank of this session.
   * @throws {WireError} when `root` takes no part: it has left the session. The tensors are unchanged, and
   *   the client can go on.
   * @throws As {@link RankClient.allReduce} does.
   */
  async broadcast(tensors: readonly TensorLike[], root: number): Promise<RoundResult> {
    if (!Number.isInteger(root) || root < 0 || root >= this.worldSize) {
      throw new RangeError(`broadcasting from rank ${root}: expected 0 to ${this.worldSize - 1}`);
    }
    // The mass says that the root took part: without it, the others would take its absence for zeros.
    if (this.rank === root) return await this.allReduce(tensors, { kind: "control", mass: 1 });
    const own = normalizeTensors(tensors);
    const received = own.map(({ name, shape, data }) => ({
      name,
      shape,
      data: new Float32Array(data.length),
    }));
    const result = await this.allReduce(received, { kind: "control", mass: 0 });
    if (result.mass === 0) {
      throw new WireError(
        "membership",
        "frame",
        `broadcasting from rank ${root} to rank ${this.rank}: nothing of it came, so it has left the ` +
          "session; the tensors are unchanged",
      );
    }
    own.forEach(({ data }, i) => data.set(received[i]!.data));
    return result;
  }

  /**
   * Tells every rank every rank's count: a Control round in which each fills its own slot.
   *
   * @param count This rank's count; exact up to 2^24.
   * @returns One count per rank; 0 for ranks that are gone.
   * @throws As {@link RankClient.allReduce} does.
   */
  async gatherCounts(count: number): Promise<Float32Array> {
    const counts = new Float32Array(this.worldSize);
    counts[this.rank] = count;
    await this.allReduce([{ name: "counts", data: counts }], { kind: "control", mass: 0 });
    return counts;
  }

  /** Leaves the session cleanly: the relay goes on without this rank. Never rejects. */
  close(): Promise<void> {
    const ended = new TransportError("ended", `rank ${this.rank} was closed`);
    this.#failed ??= ended;
    this.#link.close(ended);
    return Promise.resolve();
  }

  /** Closes the client at the end of an `await using` block. */
  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  async #join(catchUp: Tensor[] | undefined): Promise<void> {
    const additions = (this.#seal ? SEALED : 0) + (catchUp === undefined ? 0 : CATCH_UP);
    const { rank, worldSize } = this;
    const handshake = { version: this.#version + additions, rank, worldSize };
    this.#seals = await greet(this.#link, handshake, this.#salt);
    if (catchUp !== undefined) await this.#readConsensus(catchUp);
  }

  async #readConsensus(tensors: Tensor[]): Promise<void> {
    const what = `the consensus for rank ${this.rank}`;
    const bytes = new Uint8Array(CATCH_UP_BYTES);
    const fail = (text: string) =>
      new TransportError("closed", `reading ${what} from ${this.#link.peer}: ${text}`);
    if (!await this.#link.readFully(bytes, what)) throw fail("the relay closed the connection");
    const expected = layoutFor(tensors, DTYPE_F32, undefined);
    const ceiling = frameCeilingFor(expected.length);
    const seals = this.#seals?.down;
    const { rounds, length } = decodeCatchUp(bytes, this.#salt, ceiling, seals);
    if (rounds === 0) return;
    if (length === 0) {
      throw fail(
        `${rounds} rounds have been, and it has no result of a Model round; connect without catchUp, ` +
          "or to a relay that took part",
      );
    }
    const header = await receiveFrame(this.#link, this.#slot, length, what, {
      tagger: this.#tagger,
      ceiling,
      seals,
    });
    checkFoldable(header, `the relay at ${this.#link.peer}`, PROTOCOL_BF16);
    const wanted = { ...expected, kind: "model", weight: 0 } as const;
    const difference = schemaDifference(header, wanted, { anyDtype: true });
    if (difference !== undefined) throw fail(difference);
    tensors.forEach(({ bytes: into }, i) => this.#take(into, header.tensors[i]!));
    this.#consensus = { rounds, mass: header.weight };
  }

  #trace(
    round: number,
    startMs: number | undefined,
    attributes: Record<string, number>,
    failure?: string,
  ): void {
    if (startMs === undefined) return;
    this.#tracer?.round({
      name: "tierfold.rank.round",
      round,
      startMs,
      endMs: performance.timeOrigin + performance.now(),
      attributes: { "tierfold.round": round, "tierfold.rank": this.rank, ...attributes },
      failure,
    });
  }

  async #runRound(tensors: Tensor[], header: FrameHeader): Promise<RoundResult> {
    const started = performance.now();
    const { bytesIn, bytesOut } = this.#link;
    const round = this.#round++;
    const { kind } = header;
    const what = `round ${round} of rank ${this.rank}`;
    const result = await this.#link.within(this.#roundTimeoutMs, what, async () => {
      // Reading from the start notices at once when the relay refuses what is still being sent.
      const prefix = this.#readPrefix(round);
      prefix.catch(() => {});
      try {
        await this.#send(tensors, header, round);
      } catch (error) {
        throw await this.#reasonFor(error, prefix);
      }
      return await this.#receive(await prefix, header, round);
    });
    if (kind === "control" || result.weight > 0) {
      tensors.forEach(({ bytes }, i) => this.#take(bytes, result.tensors[i]!));
    }
    return {
      kind,
      mass: result.weight,
      bytesUp: this.#link.bytesOut - bytesOut,
      bytesDown: this.#link.bytesIn - bytesIn,
      ms: performance.now() - started,
    };
  }

  /** Scales, hashes and writes the frame chunk by chunk; small frames leave in one write. */
  async #send(tensors: Tensor[], header: FrameHeader, round: number): Promise<void> {
    const what = `round ${round} of rank ${this.rank}`;
    const slot = this.#slot;
    slot.reserve(header.length);
    const { frame, prefixed } = slot;
    encodeLength(prefixed, 0, header.length);
    encodeFrameHeaders(frame, header);
    const factor = header.kind === "model" ? header.weight : 1;
    const tag = new Tag64(this.#salt);
    let hashed = 0;
    let writing: Promise<void> | undefined;
    let written = 0;
    const flush = async (end: number) => {
      tag.update(frame.subarray(hashed, end));
      hashed = end;
      await writing;
      const from = written;
      written = end + LENGTH_BYTES;
      writing = this.#link.writeFully(prefixed.subarray(from, written), what);
      writing.catch(() => {});
    };
    for (let i = 0; i < tensors.length; i++) {
      const { bytes } = tensors[i]!;
      const { at, dtype } = header.tensors[i]!;
      for (let done = 0; done < bytes.length; done += CHUNK_BYTES) {
        const to = Math.min(done + CHUNK_BYTES, bytes.length);
        const source = bytes.subarray(done, to);
        const end = dtype === DTYPE_BF16 ? at + to / 2 : at + to;
        if (dtype === DTYPE_BF16) {
          this.#narrowInto(frame.subarray(at + done / 2, end), source, factor);
        } else this.#scaleInto(frame.subarray(at + done, end), source, factor);
        if (end - hashed >= CHUNK_BYTES) await flush(end);
      }
    }
    const signedEnd = header.length - TAG_BYTES;
    tag.update(frame.subarray(hashed, signedEnd));
    const digest = tag.digest();
    frame.set(this.#seals?.up.next(digest) ?? digest, signedEnd);
    await writing;
    await this.#link.writeFully(prefixed.subarray(written), what);
  }

  #scaleInto(
    target: Uint8Array<ArrayBufferLike>,
    source: Uint8Array<ArrayBufferLike>,
    factor: number,
  ): void {
    // 0 x infinity would be NaN: a rank without work contributes zeros, whatever its tensors hold.
    if (factor === 0) target.fill(0);
    else if (factor === 1) target.set(source);
    else this.#kernel.scaleCopy(target, source, factor);
  }

  #narrowInto(
    target: Uint8Array<ArrayBufferLike>,
    source: Uint8Array<ArrayBufferLike>,
    factor: number,
  ): void {
    if (factor === 0) target.fill(0);
    else this.#kernel.scaleToBf16(target, source, factor);
  }

  /** Writes one tensor of the result into the caller's values. */
  #take(into: Uint8Array<ArrayBufferLike>, { at, nbytes, dtype }: TensorHeader): void {
    const from = this.#slot.frame.subarray(at, at + nbytes);
    if (nbytes === 0) into.fill(0);
    else if (dtype === DTYPE_BF16) this.#kernel.bf16ToF32(into, from);
    else into.set(from);
  }

  async #readPrefix(round: number): Promise<Uint8Array> {
    const prefix = new Uint8Array(LENGTH_BYTES);
    if (!await this.#link.readFully(prefix, `the result of round ${round}`)) {
      throw new TransportError(
        "closed",
        `the relay at ${this.#link.peer} closed the connection while rank ${this.rank} waited for ` +
          `the result of round ${round}; its log says why`,
      );
    }
    if (isRefusal(prefix)) {
      const refused = await refusal(this.#link, prefix, this.#salt, this);
      // Ends a write that is still under way.
      this.#link.close(refused);
      throw refused;
    }
    return prefix;
  }

  async #receive(
    prefix: Uint8Array,
    sent: FrameHeader,
    round: number,
  ): Promise<FrameHeader> {
    // Its own frame tells how large an answer can be: f32 where bf16 was sent.
    const ceiling = frameCeilingFor(sent.length);
    const length = decodeLength(prefix, ceiling);
    const what = `the result of round ${round}`;
    const header = await receiveFrame(this.#link, this.#slot, length, what, {
      tagger: this.#tagger,
      ceiling,
      seals: this.#seals?.down,
    });
    checkFoldable(header, `the relay at ${this.#link.peer}`, this.#version);
    const difference = schemaDifference(header, sent, {
      anyDtype: this.#version === PROTOCOL_BF16,
    });
    if (difference !== undefined) {
      throw new WireError(
        "schema",
        "connection",
        `reading ${what} of rank ${this.rank} from ${this.#link.peer}: ${difference}`,
      );
    }
    return header;
  }

  /** What a failed write was really about, when the relay said so before it closed. */
  async #reasonFor(error: unknown, prefix: Promise<unknown>): Promise<unknown> {
    if (error instanceof InvariantError) return error;
    let timer: ReturnType<typeof setTimeout> | undefined;
    const late = new Promise<unknown>((resolve) => {
      timer = setTimeout(() => resolve(error), REASON_MS);
    });
    const said = prefix.then(() => error, (reason: unknown) => reason);
    const reason = await Promise.race([said, late]);
    clearTimeout(timer);
    return reason;
  }
}
