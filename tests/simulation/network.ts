// A network in memory: processes with addresses, connections that are late, silent, changed or cut as
// the seed has it.
import { type Connection, TransportError } from "../../transport/connection.ts";
import type { ConnectOptions, Listener, Network } from "../../transport/network.ts";
import { Pipe } from "../../transport/pipe.ts";
import { type Address, formatAddress } from "../../transport/tcp.ts";
import { Random } from "./random.ts";
import type { Trace } from "./trace.ts";

/** How the connections of a network behave. */
export interface Weather {
  /** The longest usual delay, in milliseconds. */
  readonly delayMs: number;
  /** How often bytes take up to `spikeMs`. */
  readonly spikes: number;
  readonly spikeMs: number;
  /** The most bytes of one read or write; undefined for no bound. */
  readonly mostBytes: number | undefined;
  /** Bytes that one direction holds. */
  readonly budget: number;
  /** Whether closing with unread bytes resets, as TCP does. */
  readonly resets: boolean;
}

/** Pauses between two attempts to connect, in milliseconds. */
const FIRST_PAUSE_MS = 50;
const LAST_PAUSE_MS = 2_000;

/** After so long a silence the system itself takes a connection for broken, in milliseconds. */
const KEEPALIVE_MS = 60_000;

/** One end, which its process holds. */
class Held implements Connection {
  readonly #end: Connection;
  readonly #onClose: () => void;
  closed = false;

  constructor(end: Connection, onClose: () => void) {
    this.#end = end;
    this.#onClose = onClose;
  }

  get peer(): string {
    return this.#end.peer;
  }

  read(into: Uint8Array): Promise<number | null> {
    return this.#end.read(into);
  }

  write(bytes: Uint8Array): Promise<number> {
    return this.#end.write(bytes);
  }

  closeWrite(): Promise<void> {
    return this.#end.closeWrite();
  }

  close(): void {
    if (this.closed) return;
    this.closed = true;
    this.#end.close();
    this.#onClose();
  }
}

/** A connection between two processes; end 0 has opened it. */
export class Wire {
  readonly name: string;
  readonly ends: readonly [Held, Held];
  readonly from: Host;
  readonly to: Host;
  readonly #pipe: Pipe;
  readonly #trace: Trace;
  readonly #random: Random;
  /** Bytes until it is cut. */
  #left = Infinity;
  /** Bytes of each end that will be changed. */
  readonly #spoil = [0, 0];
  #held = [false, false];
  /** Why it is broken, where silence has kept that from being noticed. */
  #broken: string | undefined;
  #keepalive: ReturnType<typeof setTimeout> | undefined;
  /** When it was last silent. */
  #silentAt = -1;

  constructor(id: number, from: Host, to: Host, at: Address, lan: Lan) {
    this.name = `${from.name}>${to.name}:${id}`;
    this.from = from;
    this.to = to;
    this.#trace = lan.trace;
    this.#random = new Random(lan.seed, 0x3172, id);
    const { weather } = lan;
    this.#pipe = new Pipe({
      seed: lan.seed * 7919 + id + 1,
      budget: weather.budget,
      resets: weather.resets,
      ...weather.mostBytes === undefined ? {} : { mostBytes: weather.mostBytes },
      names: [`10.0.0.${from.number}:${40_000 + id}`, formatAddress(at)],
      delay: () => this.#delay(weather),
      corrupt: (bytes, _, end) => this.#pass(bytes, end),
    });
    const closed = () => {
      if (!this.ends.every((end) => end.closed)) return;
      clearTimeout(this.#keepalive);
      if (this.silent) this.#silentAt = Date.now();
      lan.wires.delete(this);
      from.silentAt = Math.max(from.silentAt, this.#silentAt);
      if (to.name.startsWith("controller")) lan.silentAt = Math.max(lan.silentAt, this.#silentAt);
    };
    const [a, b] = this.#pipe.ends;
    this.ends = [new Held(a, closed), new Held(b, closed)];
    if (from.frozen) this.#pipe.hold(0, true);
    if (to.frozen) this.#pipe.hold(1, true);
  }

  /**
   * Breaks it at once; where silence is in the way, when that ends.
   *
   * @param by Who breaks it, by dying; undefined for the network.
   */
  cut(why: string, by?: Host): void {
    const unheard = by === this.from ? this.#held[0] : by === this.to ? this.#held[1] : this.silent;
    if (unheard) {
      this.#broken ??= why;
      return;
    }
    this.#kill(why);
  }

  #kill(why: string): void {
    this.#trace.note(`${this.name} is cut: ${why}`);
    this.#pipe.kill();
  }

  /** Breaks it after so many bytes. */
  cutAfter(bytes: number): void {
    this.#left = Math.min(this.#left, bytes);
  }

  /** Changes one of the next bytes that `end` writes. */
  spoil(end: 0 | 1, within: number): void {
    this.#spoil[end] = within;
  }

  /** Silence in one direction, or its end. */
  hold(end: 0 | 1, held: boolean): void {
    if (this.silent) this.#silentAt = Date.now();
    this.#held[end] = held;
    this.#hold(end);
    clearTimeout(this.#keepalive);
    if (this.silent) this.#keepalive = setTimeout(() => this.#kill("no answer"), KEEPALIVE_MS);
    else if (this.#broken !== undefined) this.#kill(this.#broken);
  }

  /** Looks anew which directions are silent. */
  look(): void {
    this.#hold(0);
    this.#hold(1);
  }

  /** Whether some direction is silent for good until somebody ends it. */
  get silent(): boolean {
    return this.#held[0]! || this.#held[1]!;
  }

  /** Whether some direction was silent at that time or since. */
  silentSince(time: number): boolean {
    return this.silent || this.#silentAt >= time;
  }

  #hold(end: 0 | 1): void {
    this.#pipe.hold(end, this.#held[end]! || this.from.frozen || this.to.frozen);
  }

  #delay({ delayMs, spikes, spikeMs }: Weather): number {
    if (spikes > 0 && this.#random.chance(spikes)) return this.#random.int(0, spikeMs);
    return delayMs === 0 ? 0 : this.#random.int(0, delayMs);
  }

  #pass(bytes: Uint8Array, end: number): void {
    this.#trace.note(`${this.name} end ${end} writes ${bytes.length}`);
    const within = this.#spoil[end]!;
    if (within > 0) {
      if (within <= bytes.length) {
        bytes[within - 1]! ^= 1 << this.#random.int(0, 7);
        this.from.spoilt.add(this.to.name.split("#")[0]!);
        this.#trace.note(`${this.name} end ${end}: a bit is flipped`);
      }
      this.#spoil[end] = Math.max(within - bytes.length, 0);
    }
    this.#left -= bytes.length;
    if (this.#left <= 0) this.cut("its bytes are used up");
  }
}

class MemoryListener implements Listener {
  readonly address: Address;
  readonly host: Host;
  readonly #onClose: () => void;
  readonly #waiting: Wire[] = [];
  #serve: ((connection: Connection) => void) | undefined;
  readonly #closed = Promise.withResolvers<void>();
  #over = false;

  constructor(address: Address, host: Host, onClose: () => void) {
    this.address = address;
    this.host = host;
    this.#onClose = onClose;
  }

  accept(serve: (connection: Connection) => void): Promise<void> {
    this.#serve = serve;
    for (const wire of this.#waiting.splice(0)) serve(wire.ends[1]);
    return this.#closed.promise;
  }

  arrive(wire: Wire): void {
    if (this.#serve === undefined) this.#waiting.push(wire);
    else this.#serve(wire.ends[1]);
  }

  close(): void {
    if (this.#over) return;
    this.#over = true;
    this.#onClose();
    for (const wire of this.#waiting.splice(0)) wire.ends[1].close();
    this.#closed.resolve();
  }
}

/** One life of a process: what it listens on and is connected to ends with it. */
export class Host implements Network {
  readonly name: string;
  readonly number: number;
  /** Whether nothing comes from it and nothing reaches it, although it lives. */
  frozen = false;
  /** When a connection that it had opened, and that has ended, was last silent. */
  silentAt = -1;
  /** Processes that it has opened a connection to on which bytes were changed, by name. */
  readonly spoilt = new Set<string>();
  readonly #lan: Lan;
  readonly #listeners = new Set<MemoryListener>();
  #dead = false;

  constructor(name: string, number: number, lan: Lan) {
    this.name = name;
    this.number = number;
    this.#lan = lan;
  }

  get dead(): boolean {
    return this.#dead;
  }

  /** Its connections. */
  get wires(): Wire[] {
    return [...this.#lan.wires].filter(({ from, to }) => from === this || to === this);
  }

  /** Whether a connection that it has opened was silent at that time or since. */
  silentSince(time: number): boolean {
    return this.silentAt >= time ||
      this.wires.some((wire) => wire.from === this && wire.silentSince(time));
  }

  freeze(frozen: boolean): void {
    this.frozen = frozen;
    for (const wire of this.wires) wire.look();
  }

  /** The process dies: all that it held breaks. */
  kill(): void {
    if (this.#dead) return;
    this.#dead = true;
    for (const listener of this.#listeners) listener.close();
    for (const wire of this.wires) wire.cut(`${this.name} dies`, this);
  }

  /** The process ends of its own accord: what it has written still arrives. */
  end(): void {
    if (this.#dead) return;
    this.#dead = true;
    for (const listener of this.#listeners) listener.close();
  }

  listen(address: Address): Listener {
    const { listeners } = this.#lan;
    const key = formatAddress(address);
    if (this.#dead || listeners.has(key)) {
      throw new TransportError("address", `listening on ${key}: address in use`);
    }
    const listener = new MemoryListener(address, this, () => {
      listeners.delete(key);
      this.#listeners.delete(listener);
    });
    listeners.set(key, listener);
    this.#listeners.add(listener);
    return listener;
  }

  async connect(address: Address, what: string, options: ConnectOptions): Promise<Connection> {
    const end = Date.now() + options.deadlineMs;
    for (let wait = FIRST_PAUSE_MS;; wait = Math.min(2 * wait, LAST_PAUSE_MS)) {
      await pause(this.#lan.setup(), options.signal);
      if (options.signal?.aborted) {
        throw new TransportError("ended", `connecting to ${what}: stopped on request`);
      }
      const wire = this.#dead ? undefined : this.#lan.join(this, address);
      if (wire !== undefined) return wire.ends[0];
      if (Date.now() + wait >= end) {
        throw new TransportError(
          "unreachable",
          `connecting to ${what} at ${formatAddress(address)}: connection refused`,
        );
      }
      await pause(wait, options.signal);
    }
  }
}

function pause(ms: number, signal: AbortSignal | undefined): Promise<void> {
  if (signal?.aborted) return Promise.resolve();
  return new Promise((resolve) => {
    const done = () => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", done);
      resolve();
    };
    const timer = setTimeout(done, ms);
    signal?.addEventListener("abort", done);
  });
}

/** All processes and connections of one run. */
export class Lan {
  readonly seed: number;
  readonly weather: Weather;
  readonly trace: Trace;
  readonly listeners = new Map<string, MemoryListener>();
  /** Connections of which an end is still open. */
  readonly wires = new Set<Wire>();
  /** When a connection with the controller that has ended since was last silent. */
  silentAt = -1;
  readonly #random: Random;
  #hosts = 0;
  #made = 0;

  constructor(seed: number, weather: Weather, trace: Trace) {
    this.seed = seed;
    this.weather = weather;
    this.trace = trace;
    this.#random = new Random(seed, 0x6c61);
  }

  /** A process starts. */
  host(name: string): Host {
    return new Host(name, ++this.#hosts, this);
  }

  /** Whether a connection with the controller was silent at that time or since. */
  silentSince(time: number): boolean {
    return this.silentAt >= time ||
      [...this.wires].some((wire) =>
        wire.to.name.startsWith("controller") && wire.silentSince(time)
      );
  }

  /** How long it takes to set up a connection, in milliseconds. */
  setup(): number {
    return this.#random.int(0, this.weather.delayMs);
  }

  /** Connects, if somebody listens there. */
  join(from: Host, address: Address): Wire | undefined {
    const listener = this.listeners.get(formatAddress(address));
    if (listener === undefined) return undefined;
    const wire = new Wire(this.#made++, from, listener.host, address, this);
    this.wires.add(wire);
    this.trace.note(`${wire.name} is there`);
    listener.arrive(wire);
    return wire;
  }
}
