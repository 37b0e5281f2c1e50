/**
 * Relays as they come, come back and go: who is let in when, and who is owed a result.
 *
 * @module
 */
import { getLogger } from "@logtape/logtape";
import type { FoldBarrier } from "../fold/barrier.ts";
import type { Bytes, SlotReader } from "../frames/slot.ts";
import { WireError } from "../wire/errors.ts";
import type { ControlMessage, HelloStanding } from "../wire/control.ts";
import { Comebacks, LOST } from "./comebacks.ts";
import type { Host, Membership } from "./membership.ts";
import type { Attendance } from "./quorum.ts";
import type { RelayPort } from "./relay_port.ts";

/** The relays of a session. */
export class Reception {
  readonly #log = getLogger(["tierfold", "controller"]);
  readonly #membership: Membership;
  readonly #barrier: FoldBarrier;
  readonly #comebacks: Comebacks;
  readonly #track: (task: Promise<void>) => void;
  readonly #ports = new Map<number, RelayPort>();
  /** By host: settles when the port that it left by does nothing more to its slot. */
  readonly #parting = new Map<number, Promise<void>>();
  /** Ports whose frame this round has, which therefore wait for its result. */
  readonly #owed = new Set<RelayPort>();
  /** By host: the ranks behind the frame that this round has of it. */
  readonly #behind = new Map<number, readonly number[]>();
  /** Settles at the end of the round, when hosts that came in its middle are let in. */
  #boundary = Promise.withResolvers<void>();
  #closed = false;

  /**
   * @param options.returnMs How long a relay that was lost is waited for.
   * @param options.givenUp Told when that has passed.
   * @param options.track Keeps a task in view.
   */
  constructor(
    membership: Membership,
    barrier: FoldBarrier,
    options: { returnMs: number; givenUp: () => void; track: (task: Promise<void>) => void },
  ) {
    this.#membership = membership;
    this.#barrier = barrier;
    this.#comebacks = new Comebacks(options.returnMs, options.givenUp);
    this.#track = options.track;
  }

  /** Connected relays that were let in. */
  get ports(): RelayPort[] {
    return [...this.#ports.values()];
  }

  /** Those whose frame this round has. */
  get owed(): RelayPort[] {
    return [...this.#owed];
  }

  /** Who is there, as far as rounds go. */
  get attendance(): Attendance {
    const { deserted, contributors, live } = this.#barrier;
    const ranks = new Set([...this.#behind.values()].flat());
    for (const key of live) {
      for (const rank of this.#membership.host(key)?.ranks ?? []) ranks.add(rank);
    }
    return {
      ranks: ranks.size,
      begun: contributors.length > 0,
      deserted,
      // A relay of ours closes its channel when it waits for no rank any more.
      hopeful: this.#comebacks.expected ||
        this.ports.some(({ instance }) => instance !== undefined),
    };
  }

  /** The relay of a host. */
  port(key: number): RelayPort | undefined {
    return this.#ports.get(key);
  }

  /** Whether it is that host's present relay whose frame this round has. */
  owes(port: RelayPort | undefined): port is RelayPort {
    return port !== undefined && this.#owed.has(port);
  }

  /**
   * Takes a relay in, and tells it.
   *
   * @returns Its host.
   * @throws {WireError} when it is refused.
   */
  async admit(port: RelayPort, hello: ControlMessage & { type: "hello" }): Promise<Host> {
    const { host: name, ranks, narrow = false, standing } = hello;
    const { worldSize } = this.#membership;
    if (hello.worldSize !== undefined && hello.worldSize !== worldSize) {
      throw new WireError(
        "membership",
        "connection",
        `Hello of host ${
          JSON.stringify(name)
        }: its relay was told world size ${hello.worldSize}, this ` +
          `session has ${worldSize}; start the relay with --world-size ${worldSize}`,
      );
    }
    const barrier = this.#barrier;
    const given = (standing && this.#comebacks.key(standing.instance)) ?? ranks[0];
    await this.#vacate(given ?? -1, port);
    const { round } = barrier;
    const found = standing && this.#comebacks.judge(standing, round);
    const first = ranks.some((rank) => this.#membership.state(rank) === "unclaimed");
    const host = this.#membership.claim(name, ranks, given);
    const { key } = host;
    host.narrow = narrow;
    this.#ports.set(key, port);
    if (found === "held") {
      barrier.rejoin(key);
      this.#owed.add(port);
    } else {
      // The round has waited for ranks that nobody had claimed; those who come back wait for its end, and
      // so does whoever takes the place of a lost relay whose frame this round has.
      const awaited = first && !barrier.holds(key) && !this.#counts(ranks);
      if (awaited) barrier.expect(key);
      if (awaited || barrier.open) barrier.join(key);
    }
    const enters = barrier.state(key) === "gone" ? round + 1 : round;
    port.welcome(host, standing && this.#comebacks.place(found!, standing, enters));
    this.#log.info("host {host} at {peer} carries ranks {ranks}", {
      host: name,
      peer: port.peer,
      ranks: ranks.join(","),
    });
    if (found && found !== "new") {
      this.#log.info("the relay of host {name} is back: {found}", { name, found });
    }
    if (standing) this.#settle(port, standing, key, first);
    if (found === "late") this.#track(this.#comebacks.sendLate(port));
    return host;
  }

  /**
   * A relay says anew what it carries.
   *
   * @returns The ranks that are back.
   * @throws {WireError} when that cannot be.
   */
  renew({ host }: RelayPort, ranks: readonly number[], narrow: boolean): number[] {
    const { key } = host!;
    host!.narrow = narrow;
    const back = this.#membership.renew(host!, ranks);
    if (this.#barrier.state(key) === "gone" && this.#barrier.open) this.#barrier.join(key);
    return back;
  }

  /** Settles when a host that came in the middle of a round may be listened to; undefined if it may. */
  entrance({ host }: RelayPort): Promise<void> | undefined {
    return this.#mustWait(host!) ? this.#entered(host!) : undefined;
  }

  /** A frame of that relay begins to arrive: it has what it was owed. */
  begins({ instance }: RelayPort): void {
    if (instance !== undefined) this.#comebacks.begins(instance);
  }

  /** A frame of that relay is in the round. */
  delivered(port: RelayPort): void {
    this.#owed.add(port);
    this.#behind.set(port.host!.key, [...port.host!.ranks]);
    if (port.instance !== undefined) this.#comebacks.take(port.instance, this.#barrier.round);
  }

  /** The last ranks have left of their own accord: nobody waits for those that were lost. */
  emptied(): void {
    this.#comebacks.close();
  }

  /**
   * A relay is gone.
   *
   * @returns The ranks that are lost with it, and whether its frame stays in the round.
   */
  leave(port: RelayPort): { lost: number[]; inRound: boolean } {
    const host = port.host!;
    this.#ports.delete(host.key);
    this.#parting.set(host.key, port.done);
    this.#owed.delete(port);
    const inRound = this.#barrier.leave(host.key);
    const lost = this.#membership.release(host);
    if (port.instance !== undefined) {
      if (lost.length === 0) this.#comebacks.done(port.instance);
      else this.#comebacks.lost(port.instance);
    }
    return { lost, inRound };
  }

  /**
   * A round has closed; its result goes to those who are owed it.
   *
   * @param other Who else reads the result.
   * @returns Who reads the memory of the result on, and what settles when it has left.
   */
  sendResult(
    round: number,
    record: Bytes,
    other: SlotReader | undefined,
  ): { reader: SlotReader; sent: Promise<unknown> } {
    // A host whose ranks have all left since still waits for the round that it took part in.
    const sent = Promise.all(this.owed.map((port) => port.sendResult(record, round)));
    this.#owed.clear();
    return { reader: this.#comebacks.closed(round, record, other), sent };
  }

  /** The next round gathers: those who came in the middle of the last one are let in. */
  open(): void {
    this.#behind.clear();
    this.#letIn(this.#waiting);
  }

  /**
   * Lets those who wait into a round that cannot close without them.
   *
   * @returns Whether there was anybody.
   */
  openEarly(): boolean {
    const waiting = this.#waiting.filter((key) =>
      !this.#barrier.holds(key) && !this.#counts(this.#membership.host(key)?.ranks ?? [])
    );
    for (const key of waiting) this.#barrier.expect(key);
    if (waiting.length > 0) this.#letIn(waiting);
    return waiting.length > 0;
  }

  /** Tells the relay of a host why it must go. */
  expel(key: number, reason: string): void {
    const port = this.#ports.get(key);
    if (port !== undefined) this.#track(port.refuse(reason));
  }

  /** The session is over: nobody waits any more, and all relays learn why. */
  close(error: unknown): void {
    this.#closed = true;
    this.#boundary.resolve();
    for (const port of this.ports) {
      if (error === undefined) port.abandon();
      else {
        const text = error instanceof Error ? error.message : String(error);
        this.#track(port.refuse(`the controller ended: ${text}`));
      }
    }
    this.#comebacks.close();
  }

  /** Whether this round has work of one of these ranks, from whatever host. */
  #counts(ranks: Iterable<number>): boolean {
    const counted = new Set(
      [...this.#behind].flatMap(([key, behind]) => this.#barrier.holds(key) ? behind : []),
    );
    return [...ranks].some((rank) => counted.has(rank));
  }

  #mustWait({ key, ranks }: Host): boolean {
    return !this.#closed && this.#barrier.state(key) === "gone" && ranks.size > 0;
  }

  async #entered(host: Host): Promise<void> {
    while (this.#mustWait(host)) await this.#boundary.promise;
  }

  /** Hosts with ranks that take no part yet. */
  get #waiting(): number[] {
    return this.#membership.hosts
      .filter(({ key, ranks }) => this.#barrier.state(key) === "gone" && ranks.size > 0)
      .map(({ key }) => key);
  }

  #letIn(keys: readonly number[]): void {
    for (const key of keys) this.#barrier.join(key);
    this.#boundary.resolve();
    this.#boundary = Promise.withResolvers();
  }

  /** Waits until nobody uses the slot of a host any more; a relay's own lost channel is closed for it. */
  async #vacate(key: number, port: RelayPort): Promise<void> {
    const old = this.#ports.get(key);
    if (old?.instance !== undefined && old.instance === port.instance) {
      // The same relay on a new channel has lost the old one, whatever this end has seen of that.
      old.abandon();
      await old.done;
    }
    await this.#parting.get(key);
  }

  /** Counts a relay in; where it shows that a frame sent again was counted before, that one is out. */
  #settle(port: RelayPort, standing: HelloStanding, key: number, first: boolean): void {
    for (const at of this.#comebacks.enter(standing, key)) {
      // Nothing was folded while ranks were missing.
      if (first && this.#barrier.holds(at)) this.#barrier.discard(at);
      if (this.#ports.get(at) !== port) this.expel(at, LOST);
    }
  }
}
