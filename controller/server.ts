/**
 * The controller, the root of the tree: gathers the hosts' frames, folds them, divides once by the mass
 * that was accepted, and sends the same bytes to every relay.
 *
 * @module
 */
import { getLogger } from "@logtape/logtape";
import { FoldBarrier } from "../fold/barrier.ts";
import { RoundDeadline } from "../fold/deadline.ts";
import { type EagerEnd, RoundFolder } from "../fold/round_folder.ts";
import { checkFoldable, schemaError } from "../fold/schema.ts";
import type { Arriving } from "../frames/receive.ts";
import type { RecordEnd } from "../frames/records.ts";
import { FrameSlot } from "../frames/slot.ts";
import { autoWorkers, PooledTagger } from "../workers/tagger.ts";
import { Arena } from "../kernels/arena.ts";
import type { FoldKernel } from "../kernels/kernel.ts";
import { RoundClock } from "../serve/round_clock.ts";
import { Sitting } from "../serve/sitting.ts";
import { StrangerLog } from "../serve/stranger_log.ts";
import { tcp } from "../transport/network.ts";
import { formatAddress } from "../transport/tcp.ts";
import { WireError } from "../wire/errors.ts";
import { RECORD_HEADER_BYTES } from "../wire/mux.ts";
import type { ControlMessage } from "../wire/control.ts";
import type { FrameHeader } from "../wire/round_frame.ts";
import { Membership } from "./membership.ts";
import { Quorum } from "./quorum.ts";
import { Reception } from "./reception.ts";
import { type RelayHost, RelayPort } from "./relay_port.ts";
import type { RoundHooks } from "./hooks.ts";
import type { ControllerOutcome, ControllerSettings } from "./settings.ts";
import { type RelayTerms, relayTerms } from "./relay_terms.ts";
import { Sidelines } from "./sidelines.ts";
import { keeping } from "./state/session_state.ts";
import type { SessionObserver } from "./observer.ts";
import { Watch } from "./status/watch.ts";

export type { ControllerOutcome, ControllerSettings };

/** How long a relay gets to fold what it has after its late ranks were declared dead. */
const GRACE_MS = 5_000;

/** Serves one session. */
export class Controller implements RelayHost {
  readonly #settings: ControllerSettings;
  readonly #log = getLogger(["tierfold", "controller"]);
  readonly #strangers = new StrangerLog(this.#log);
  readonly #arena: Arena;
  readonly #membership: Membership;
  readonly #reception: Reception;
  readonly #quorum: Quorum;
  readonly #barrier = new FoldBarrier([]);
  #out: FrameSlot;
  readonly tagger: PooledTagger;
  readonly terms: RelayTerms;
  readonly #folder: RoundFolder;
  readonly #sidelines: Sidelines | undefined;
  readonly #state: RoundHooks | undefined;
  readonly #observer: SessionObserver | undefined;
  readonly #clock: RoundClock;
  readonly #slots = new Map<number, FrameSlot>();
  readonly #sitting: Sitting = new Sitting({
    turn: () => this.#turn(),
    over: (error) => this.#part(error),
    greet: (connection) => new RelayPort(connection, this),
    acceptFailed: ({ message }) =>
      this.#log.error("accepting a relay: {error}; trying again", { error: message }),
  });
  readonly #outcome: ControllerOutcome = { rounds: 0, left: [], lost: [] };
  /** Settles when the slot of the result may be written again. */
  #resultsOut: Promise<unknown> = Promise.resolve();
  #outFree = true;
  #graceTimer: ReturnType<typeof setTimeout> | undefined;
  #quorumTimer: ReturnType<typeof setTimeout> | undefined;
  #joinTimer: ReturnType<typeof setTimeout> | undefined;

  private constructor(
    settings: ControllerSettings,
    arena: Arena,
    kernel: FoldKernel,
    sidelines: Sidelines | undefined,
    state: RoundHooks | undefined,
    deadline: RoundDeadline,
    observer: SessionObserver | undefined,
  ) {
    this.#settings = settings;
    this.#state = state;
    this.#observer = observer;
    this.#clock = new RoundClock(deadline, (ms) => this.#tooLate(ms));
    this.#sidelines = sidelines;
    this.#arena = arena;
    this.#membership = new Membership(settings.worldSize);
    const { minRanks = 1, returnDeadlineMs = 0 } = settings;
    this.#quorum = new Quorum(minRanks, returnDeadlineMs);
    this.#reception = new Reception(this.#membership, this.#barrier, {
      returnMs: returnDeadlineMs,
      givenUp: () => this.#sitting.pump(),
      track: (task) => this.#sitting.track(task),
    });
    this.#out = new FrameSlot(arena);
    const workers = settings.workers === "auto" ? autoWorkers() : settings.workers;
    this.terms = relayTerms(settings);
    this.tagger = new PooledTagger(settings.salt, arena.memory, workers);
    this.#folder = new RoundFolder(
      arena,
      kernel,
      this.#barrier,
      this.#out,
      (key) => Math.max(this.#membership.host(key)?.ranks.size ?? 0, 1),
    );
  }

  /**
   * Serves until every rank has left, or `signal` aborts.
   *
   * @throws {TransportError} when the address cannot be had.
   * @throws {WireError} when no relay came in time.
   * @throws As {@link SessionState.open} and {@link SessionState.end} do.
   */
  static async run(settings: ControllerSettings, signal: AbortSignal): Promise<ControllerOutcome> {
    const arena = new Arena();
    const kernel = await settings.kernel(arena);
    let controller: Controller | undefined;
    let sidelines: Sidelines | undefined;
    const deadline = RoundDeadline.of(settings);
    const watch = Watch.of(settings, kernel.name, deadline);
    try {
      sidelines = settings.sidelines &&
        await Sidelines.start(settings.sidelines, kernel, watch?.handlers);
      const state = await settings.state?.(arena);
      watch?.attach(sidelines, state);
      return await keeping(state, () => {
        const observer = watch?.view;
        controller = new Controller(settings, arena, kernel, sidelines, state, deadline, observer);
        watch?.steer(controller);
        return controller.#serve(signal);
      });
    } finally {
      watch?.close();
      controller?.tagger.close();
      await sidelines?.close();
      await kernel.close();
    }
  }

  /** Tells a rank's relay to go on without it; false where no relay carries it. */
  declareDead(rank: number): boolean {
    const host = this.#membership.hosts.find(({ ranks }) => ranks.has(rank));
    const port = host && this.#reception.port(host.key);
    if (port !== undefined) this.#sitting.track(port.declareDead(rank));
    return port !== undefined;
  }

  // What a relay's port asks.

  async hello(port: RelayPort, hello: ControlMessage & { type: "hello" }): Promise<void> {
    const host = await this.#reception.admit(port, hello);
    this.#observer?.hostJoined(host, port.peer);
    const { unclaimed, worldSize } = this.#membership;
    if (unclaimed.length === 0) this.#log.info("all {worldSize} ranks have a relay", { worldSize });
    this.#watchRound();
    this.#sitting.pump();
  }

  renew(port: RelayPort, ranks: readonly number[], narrow: boolean): void {
    const host = port.host!;
    const back = this.#reception.renew(port, ranks, narrow);
    if (back.length === 0) return;
    this.#sitting.pump();
    this.#log.info("ranks {ranks} of host {host} are back", {
      ranks: back.join(","),
      host: host.name,
    });
    this.#observer?.ranksReturned(host, back);
  }

  entrance(port: RelayPort): Promise<void> | undefined {
    return this.#reception.entrance(port);
  }

  expectFrame(port: RelayPort): FrameSlot {
    const { key, name } = port.host!;
    if (!this.#barrier.maySend(key)) {
      throw new WireError(
        "membership",
        "connection",
        `host ${
          JSON.stringify(name)
        } sent a frame in round ${this.#barrier.round}, in which none ` +
          "of it was due",
      );
    }
    this.#reception.begins(port);
    this.#sidelines?.roundBegins(this.#barrier.round);
    this.#clock.begins(key);
    this.#observer?.frameBegins(port.host!);
    let slot = this.#slots.get(key);
    if (slot === undefined) this.#slots.set(key, slot = new FrameSlot(this.#arena));
    return slot;
  }

  arriving(port: RelayPort, ...what: Parameters<Arriving>): void {
    this.#folder.arriving(port.host!.key, ...what, () => this.#eagerEnd());
  }

  deliver(port: RelayPort, header: FrameHeader): void {
    const { key, name } = port.host!;
    checkFoldable(header, `host ${JSON.stringify(name)}`);
    this.#barrier.deliver(key, { bytes: this.#slots.get(key)!.frame, header });
    this.#clock.arrives(key);
    this.#log.trace("the frame of host {name} is in round {round}", {
      name,
      round: this.#barrier.round,
    });
    this.#state?.delivered(key, name, port.host!.ranks, header.weight);
    this.#observer?.delivered(port.host!, header.length + RECORD_HEADER_BYTES, header.weight);
    this.#reception.delivered(port);
    this.#watchRound();
    this.#sitting.pump();
  }

  rankExit(port: RelayPort, rank: number): void {
    const host = port.host!;
    this.#membership.exit(host, rank);
    this.#outcome.left.push(rank);
    this.#log.info("rank {rank} of host {host} left in round {round}", {
      rank,
      host: host.name,
      round: this.#barrier.round,
    });
    this.#gone([rank], host.name, "its connection to its relay was closed", false);
    this.#observer?.rankLeft(host, rank);
    if (host.ranks.size === 0 && !this.#barrier.leave(host.key)) {
      this.#folder.disturbed(host.key);
    }
    if (this.#barrier.deserted) this.#reception.emptied();
    this.#watchRound();
    this.#sitting.pump();
  }

  left(port: RelayPort, reason: string, refused: boolean): void {
    const { host } = port;
    if (refused && !this.#sitting.over) this.#observer?.refused(port.peer, host, reason);
    if (host === undefined) {
      this.#strangers.tell(port.peer, reason, performance.now());
      return;
    }
    const { lost, inRound } = this.#reception.leave(port);
    this.#clock.leaves(host.key);
    if (!inRound) this.#folder.disturbed(host.key);
    this.#outcome.lost.push(...lost);
    this.#observer?.hostLeft(host, lost, reason);
    if (lost.length === 0) this.#log.info("host {host} is done", { host: host.name });
    else {
      this.#log.warn("host {host} is out in round {round} with ranks {ranks}: {reason}; {kept}", {
        host: host.name,
        round: this.#barrier.round,
        ranks: lost.join(","),
        reason,
        kept: inRound ? "its frame stays in the round" : "the round goes on without it",
      });
      this.#gone(lost, host.name, reason);
    }
    if (this.#sitting.over) return;
    this.#watchRound();
    this.#sitting.pump();
  }

  async #serve(signal: AbortSignal): Promise<ControllerOutcome> {
    signal.throwIfAborted();
    const listener = (this.#settings.network ?? tcp).listen(this.#settings.listen);
    const { address } = listener;
    this.#log.info("a session of {worldSize} ranks, accepting relays on {address}", {
      worldSize: this.#settings.worldSize,
      address: formatAddress(address),
    });
    try {
      await this.#sitting.serve(listener, signal, () => {
        this.#settings.onListening(address);
        this.#observer?.listening(formatAddress(address));
        this.#joinTimer = setTimeout(() => this.#giveUpAbsent(), this.#settings.joinDeadlineMs);
      });
      return this.#outcome;
    } finally {
      this.#reception.emptied();
      clearTimeout(this.#quorumTimer);
      clearTimeout(this.#joinTimer);
      clearTimeout(this.#graceTimer);
      this.#clock.stop();
    }
  }

  /** The session is over: whoever is here learns why. */
  #part(error: unknown): void {
    this.#observer?.ended(error);
    this.#reception.close(error);
  }

  /** Folds what is ready and closes the round when it is complete. */
  async #turn(): Promise<void> {
    await this.#resultsOut;
    // A host that is still to come may go before those whose frames are here.
    if (this.#membership.unclaimed.length > 0) return;
    if (this.#isShort()) return;
    // A result that will be narrowed is folded in one go.
    if (!this.#narrowResult()) await this.#folder.absorb();
    if (this.#barrier.complete) await this.#closeRound();
  }

  /** Whether the round must wait for ranks, or nobody is left for one; looks again in time. */
  #isShort(): boolean {
    const attendance = this.#reception.attendance;
    const waitMs = this.#quorum.look(attendance, performance.now());
    const { state } = this.#quorum;
    clearTimeout(this.#quorumTimer);
    if (state === "enough") return false;
    if (waitMs > 0) {
      this.#quorumTimer = setTimeout(() => this.#sitting.pump(), Math.ceil(waitMs));
      // They come before what was folded ahead.
      if (state === "short" && this.#reception.openEarly()) this.#folder.afresh();
      return true;
    }
    const failed = state === "short" && this.#quorum.failure(this.#barrier.round, attendance);
    this.#sitting.end(failed || undefined);
    return true;
  }

  async #closeRound(): Promise<void> {
    this.#clock.stop();
    const barrier = this.#barrier;
    for (const { member, difference, reference } of this.#folder.settle()) {
      const port = this.#reception.port(member);
      // A relay in the place of a lost one is not to blame for its frame.
      const here = this.#reception.owes(port);
      const who = here ? this.#hostName(member) : `the lost host of rank ${member}`;
      const { message } = schemaError(who, difference, this.#hostName(reference));
      if (here) this.#sitting.track(port.refuse(message));
      else this.#log.warn("{message}", { message });
    }
    const frames = barrier.contributors.map((key) => barrier.frame(key).header);
    const mass = frames.reduce((sum, { weight }) => sum + weight, 0);
    const step = await this.#state?.folding(frames[0]!, mass);
    const end = { divide: true, narrow: this.#narrowResult(), step };
    const header = await this.#folder.finish(this.#recordEnd, end);
    clearTimeout(this.#graceTimer);
    const { frames: arrived, lagMs, deadlineMs } = this.#clock.close(header.kind);
    barrier.seal();
    const { round, contributors } = barrier;
    this.#log.debug(
      "round {round}: {kind} of hosts {hosts} closed with mass {mass}, {lag} ms apart",
      () => ({
        round,
        kind: header.kind,
        hosts: arrived.map(({ member }) => this.#hostName(member)).join(", "),
        mass: header.weight,
        lag: Math.round(lagMs),
      }),
    );
    this.#observer?.closed({
      round,
      kind: header.kind,
      mass: header.weight,
      hosts: contributors,
      receivers: this.#reception.owed.map((port) => port.host!.key),
      bytes: header.length + RECORD_HEADER_BYTES,
      deadlineMs,
    });
    barrier.close();
    this.#outcome.rounds++;
    const { record } = this.#out;
    const other = this.#sidelines?.onResult({
      kind: header.kind,
      mass: header.weight,
      memory: this.#out.frame,
      tensors: header.tensors,
    });
    const { reader, sent } = this.#reception.sendResult(round, record, other);
    this.#out.reader = reader;
    this.#resultsOut = sent;
    this.#outFree = false;
    void this.#resultsOut.then(() => this.#outFree = true);
    const over = () => this.#sidelines?.roundIsOver(round);
    this.#resultsOut.then(over, over);
    this.#reception.open();
    this.#sitting.pump();
    if (this.#state === undefined) return;
    this.#out = await this.#state.closed({
      round,
      header,
      out: this.#out,
      hosts: contributors,
      sent,
    });
    this.#folder.redirect(this.#out);
  }

  /** How a round ends that is folded eagerly; not where its result is narrowed or stepped on. */
  #eagerEnd(): EagerEnd | undefined {
    const waits = !this.#outFree || this.#membership.unclaimed.length > 0;
    const narrows = this.#membership.hosts.every(({ narrow }) => narrow);
    if (waits || narrows || this.#state !== undefined) return undefined;
    return { ...this.#recordEnd, divide: true };
  }

  /** How the result leaves. */
  get #recordEnd(): RecordEnd {
    const plain = this.#reception.ports.some(({ sealed }) => !sealed);
    return { kind: "broadcast", tagger: this.tagger, plain };
  }

  /**
   * Whether the round's result may carry bf16: a Model round, and every host takes it, also one whose ranks
   * have left or that is away, since it still waits for the round that it took part in.
   */
  #narrowResult(): boolean {
    const { contributors, live } = this.#barrier;
    const [first] = contributors;
    return !this.#state?.wide && first !== undefined &&
      this.#barrier.frame(first).header.kind === "model" &&
      [...contributors, ...live].every((key) => this.#membership.host(key)?.narrow);
  }

  #hostName(key: number): string {
    const host = this.#membership.host(key);
    return host === undefined ? `the host of rank ${key}` : `host ${JSON.stringify(host.name)}`;
  }

  #gone(ranks: number[], host: string | undefined, reason: string, lost = true): void {
    this.#state?.gone({ round: this.#barrier.round, host, ranks, lost, reason });
  }

  #giveUpAbsent(): void {
    const { joinDeadlineMs } = this.#settings;
    const ranks = this.#membership.giveUpUnclaimed();
    if (ranks.length === 0) return;
    this.#outcome.lost.push(...ranks);
    const reason = `no relay claimed it within ${joinDeadlineMs} ms`;
    this.#gone(ranks, undefined, reason);
    this.#observer?.neverCame(ranks, reason);
    this.#log.warn("ranks {ranks}: no relay claimed them within {ms} ms; going on without them", {
      ranks: ranks.join(","),
      ms: joinDeadlineMs,
    });
    if (ranks.length === this.#settings.worldSize) {
      this.#sitting.end(
        new WireError(
          "membership",
          "connection",
          `waiting for relays: none came within ${joinDeadlineMs} ms`,
        ),
      );
      return;
    }
    this.#watchRound();
    this.#sitting.pump();
  }

  /** Starts the round's clock at its first frame, once every rank has a relay or was given up. */
  #watchRound(): void {
    const [first] = this.#barrier.contributors;
    if (first === undefined || this.#membership.unclaimed.length > 0) return;
    this.#clock.start(this.#barrier.frame(first).header.kind);
  }

  /** Gives up the ranks of the hosts that have not delivered; then the hosts that still have not. */
  #tooLate(deadlineMs: number): void {
    const waitedMs = Math.round(deadlineMs);
    const barrier = this.#barrier;
    const { round, awaited } = barrier;
    for (const key of awaited) {
      const host = this.#membership.host(key)!;
      this.#log.warn("host {host} has not delivered in round {round} after {ms} ms", {
        host: host.name,
        round,
        ms: waitedMs,
      });
      this.#observer?.late(host, waitedMs);
      for (const rank of host.ranks) {
        this.#sitting.track(this.#reception.port(key)!.declareDead(rank));
      }
    }
    this.#graceTimer = setTimeout(() => {
      const why = `did not deliver within ${waitedMs} ms of round ${round}'s first frame, nor ` +
        `${GRACE_MS} ms after its ranks were declared dead`;
      for (const key of barrier.awaited) {
        this.#reception.expel(key, `${this.#hostName(key)} ${why}`);
      }
    }, GRACE_MS);
  }
}
