/**
 * Threads that hash. Each lane lives on one thread, which sees its bytes in order; the thread reads them
 * in the shared memory where they lie.
 *
 * @module
 */
import type { createHmac as CreateHmac, Hmac } from "node:crypto";
import { invariant } from "../wire/errors.ts";
import { TAG_BYTES } from "../wire/limits.ts";
import type { TagLane } from "./tagger.ts";

/** Bytes gathered before a thread is told: a message costs about as much as hashing 100 KiB. */
const BATCH_BYTES = 512 * 1024;

/** What a thread is told. */
type Order =
  | { type: "start"; salt: Uint8Array }
  | { type: "memory"; memory: ArrayBufferLike }
  | { type: "update"; lane: number; at: number; length: number }
  | { type: "bytes"; lane: number; bytes: Uint8Array }
  | { type: "digest"; lane: number }
  | { type: "abandon"; lane: number };

/** What it answers to "digest". */
interface Answer {
  lane: number;
  digest: Uint8Array;
}

/** The global scope of a thread, as far as it is used. */
interface Scope {
  onmessage: ((event: MessageEvent<Order>) => void) | null;
  postMessage(answer: Answer): void;
}

/**
 * What a thread runs. It is started from its own source text, so that it needs neither a file nor the
 * permission to read one; hence it uses nothing but its arguments.
 */
function serve(createHmac: typeof CreateHmac, scope: Scope): void {
  const lanes = new Map<number, Hmac>();
  let memory: ArrayBufferLike;
  let salt: Uint8Array;
  const lane = (number: number): Hmac => {
    let hmac = lanes.get(number);
    if (hmac === undefined) lanes.set(number, hmac = createHmac("sha256", salt));
    return hmac;
  };
  scope.onmessage = ({ data: order }) => {
    switch (order.type) {
      case "start":
        ({ salt } = order);
        break;
      case "memory":
        ({ memory } = order);
        break;
      case "update":
        lane(order.lane).update(new Uint8Array(memory, order.at, order.length));
        break;
      case "bytes":
        lane(order.lane).update(order.bytes);
        break;
      case "digest":
        scope.postMessage({
          lane: order.lane,
          digest: new Uint8Array(lane(order.lane).digest()),
        });
        lanes.delete(order.lane);
        break;
      case "abandon":
        lanes.delete(order.lane);
        break;
    }
  };
}

class Thread {
  readonly #worker: Worker;
  readonly #waiting = new Map<number, (digest: Uint8Array) => void>();
  #memory: ArrayBufferLike | undefined;
  /** Bytes that open lanes have announced. */
  load = 0;

  constructor(url: string, salt: Uint8Array) {
    this.#worker = new Worker(url, { type: "module", name: "tierfold-hash" });
    this.#worker.onmessage = ({ data }: MessageEvent<Answer>) => {
      const resolve = this.#waiting.get(data.lane);
      invariant(resolve !== undefined, `a thread answers for lane ${data.lane}, which is not open`);
      this.#waiting.delete(data.lane);
      resolve(data.digest);
    };
    this.tell({ type: "start", salt });
  }

  /**
   * Sees to it that the thread can read `memory` as it is now: the growth of a memory reaches another
   * thread's view of it at some later time only.
   */
  share(memory: ArrayBufferLike): void {
    if (memory === this.#memory) return;
    this.#memory = memory;
    this.tell({ type: "memory", memory });
  }

  tell(order: Order): void {
    this.#worker.postMessage(order);
  }

  digest(lane: number): Promise<Uint8Array> {
    return new Promise((resolve) => {
      this.#waiting.set(lane, resolve);
      this.tell({ type: "digest", lane });
    });
  }

  end(): void {
    this.#worker.terminate();
  }
}

class ThreadLane implements TagLane {
  readonly #thread: Thread;
  readonly #lane: number;
  readonly #memory: WebAssembly.Memory;
  readonly #length: number;
  /** A run of the memory that the thread was not told of yet. */
  #from = 0;
  #to = 0;
  #open = true;

  constructor(thread: Thread, lane: number, memory: WebAssembly.Memory, length: number) {
    this.#thread = thread;
    this.#lane = lane;
    this.#memory = memory;
    this.#length = length;
    thread.load += length;
  }

  update(bytes: Uint8Array): void {
    if (!(bytes.buffer instanceof SharedArrayBuffer)) {
      this.#flush();
      this.#thread.tell({ type: "bytes", lane: this.#lane, bytes: Uint8Array.from(bytes) });
      return;
    }
    if (bytes.byteOffset !== this.#to) {
      this.#flush();
      this.#from = bytes.byteOffset;
    }
    this.#to = bytes.byteOffset + bytes.length;
    if (this.#to - this.#from >= BATCH_BYTES) this.#flush();
  }

  async digest(): Promise<Uint8Array> {
    this.#flush();
    const digest = await this.#thread.digest(this.#lane);
    this.#end();
    return digest.subarray(0, TAG_BYTES);
  }

  abandon(): void {
    if (!this.#open) return;
    this.#thread.tell({ type: "abandon", lane: this.#lane });
    this.#end();
  }

  #end(): void {
    if (this.#open) this.#thread.load -= this.#length;
    this.#open = false;
  }

  #flush(): void {
    const length = this.#to - this.#from;
    if (length > 0) {
      invariant(this.#to <= this.#memory.buffer.byteLength, "a lane reads outside the arena");
      this.#thread.share(this.#memory.buffer);
      this.#thread.tell({ type: "update", lane: this.#lane, at: this.#from, length });
    }
    this.#from = this.#to;
  }
}

/** Threads over one shared memory. */
export class HashPool {
  readonly #threads: Thread[];
  readonly #memory: WebAssembly.Memory;
  #lanes = 0;

  /**
   * Starts the threads.
   *
   * @param salt The session salt.
   * @param memory The shared memory in which the bytes lie.
   * @param count How many threads.
   */
  constructor(salt: Uint8Array, memory: WebAssembly.Memory, count: number) {
    this.#memory = memory;
    const source = `import { createHmac } from "node:crypto";\n(${serve})(createHmac, self);`;
    const url = URL.createObjectURL(new Blob([source], { type: "text/javascript" }));
    this.#threads = Array.from({ length: count }, () => new Thread(url, salt));
    URL.revokeObjectURL(url);
  }

  /** Opens a lane for about `length` bytes on the thread that has least to do. */
  open(length: number): TagLane {
    const thread = this.#threads.reduce((least, other) => other.load < least.load ? other : least);
    return new ThreadLane(thread, this.#lanes++, this.#memory, length);
  }

  /** Ends the threads; open lanes never settle. */
  close(): void {
    for (const thread of this.#threads) thread.end();
  }
}
