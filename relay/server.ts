/**
 * The relay of one host: gathers its ranks' frames, folds them, sends one frame on, hands the result
 * back. It never divides.
 *
 * @module
 */
import { getLogger } from "@logtape/logtape";
import { FoldBarrier } from "../fold/barrier.ts";
import { RoundDeadline } from "../fold/deadline.ts";
import { NonFiniteScreen } from "../fold/nonfinite.ts";
import { type EagerEnd, RoundFolder } from "../fold/round_folder.ts";
import { schemaDifference, schemaError } from "../fold/schema.ts";
import type { Arriving } from "../frames/receive.ts";
import type { RecordEnd } from "../frames/records.ts";
import { FrameSlot } from "../frames/slot.ts";
import { autoWorkers, PooledTagger } from "../workers/tagger.ts";
import { Arena } from "../kernels/arena.ts";
import type { FoldKernel } from "../kernels/kernel.ts";
import { RoundClock } from "../serve/round_clock.ts";
import { Sitting } from "../serve/sitting.ts";
import { StrangerLog } from "../serve/stranger_log.ts";
import { TERMS, type Terms } from "../serve/terms.ts";
import { tcp } from "../transport/network.ts";
import { formatAddress } from "../transport/tcp.ts";
import { WireError } from "../wire/errors.ts";
import type { RankHandshake } from "../wire/handshake.ts";
import { encodeLength } from "../wire/length.ts";
import { nameIn } from "../wire/manifest.ts";
import type { FrameHeader } from "../wire/round_frame.ts";
import { Door, nothingHeld } from "./door.ts";
import { Lifeline, type LifelineHost } from "./lifeline.ts";
import type { RelayObserver } from "./observer.ts";
import { type RankHost, RankPort, type RefusalCause } from "./rank_port.ts";
import { Hope } from "./patience.ts";
import { Roll } from "./roll.ts";
import { controllerLimit, type RelayOutcome, type RelaySettings } from "./settings.ts";
import { RelayWatch } from "./status/watch.ts";

/** Serves one session. */
export class Relay implements RankHost, LifelineHost {
  readonly #settings: RelaySettings;
  readonly #log;
  readonly #strangers: StrangerLog;
  readonly #arena: Arena;
  readonly #barrier: FoldBarrier;
  readonly #out: FrameSlot;
  readonly #observer: RelayObserver | undefined;
  readonly #clock: RoundClock;
  readonly tagger: PooledTagger;
  readonly #folder: RoundFolder;
  readonly screen: NonFiniteScreen;
  readonly #slots = new Map<number, FrameSlot>();
  readonly #sitting: Sitting = new Sitting({
    turn: () => this.#turn(),
    over: (error) => this.#part(error),
    greet: (connection) => new RankPort(connection, this),
    acceptFailed: ({ message }) =>
      this.#log.error("accepting a rank: {error}; trying again", { error: message }),
  });
  readonly #outcome: RelayOutcome = { rounds: 0, left: [], lost: [] };
  readonly #lifeline: Lifeline;
  readonly #door: Door;
  readonly #roll: Roll;
  readonly #hope = new Hope(() => this.#sitting.pump());
  #sent: FrameHeader | undefined;
  /** Whether the slot of the result holds that of a Model round. */
  #held = false;
  /** Whether the controller was told that all ranks take bf16. */
  #narrow = false;
  /** Settles when the slot of the result may be written again. */
  #resultsOut: Promise<unknown> = Promise.resolve();
  #outFree = true;
  /** Runs while a result is waited for. */
  #resultTimer: ReturnType<typeof setTimeout> | undefined;
  #joinTimer: ReturnType<typeof setTimeout> | undefined;

  private constructor(
    settings: RelaySettings,
    arena: Arena,
    kernel: FoldKernel,
    deadline: RoundDeadline,
    observer: RelayObserver | undefined,
  ) {
    this.#settings = settings;
    this.#observer = observer;
    this.#clock = new RoundClock(deadline, (ms) => this.#tooLate(ms));
    this.#log = getLogger(["tierfold", "relay"]).with({ host: settings.host });
    this.#strangers = new StrangerLog(this.#log);
    this.#arena = arena;
    this.#barrier = new FoldBarrier(settings.ranks);
    this.#out = new FrameSlot(arena);
    this.screen = new NonFiniteScreen(
      arena,
      settings.nonfinite ?? "refuse",
      (tensor, count) => nameIn(settings.manifest, tensor, count),
    );
    const workers = settings.workers === "auto" ? autoWorkers() : settings.workers;
    this.tagger = new PooledTagger(settings.salt, arena.memory, workers);
    this.#folder = new RoundFolder(arena, kernel, this.#barrier, this.#out, () => 1);
    this.#lifeline = new Lifeline(settings, this.tagger, this, observer);
    this.#roll = new Roll(this.#barrier, this.#lifeline, (task) => this.#sitting.track(task));
    this.#door = new Door(settings, this.#barrier, {
      ready: (port) => this.#isReady(port),
      enter: (rank, port) => this.#enter(rank, port),
      // The controller may wait for it to close the round.
      waits: () => this.#introduce(),
    });
  }

  /**
   * Serves until every rank has left, or `signal` aborts.
   *
   * @throws {TransportError} when the address or the controller cannot be had, or the controller is lost.
   * @throws {WireError} when the controller sends what it must not.
   */
  static async run(settings: RelaySettings, signal: AbortSignal): Promise<RelayOutcome> {
    const arena = new Arena();
    const kernel = await settings.kernel(arena);
    const deadline = RoundDeadline.of(settings);
    let watch: RelayWatch | undefined;
    let relay: Relay | undefined;
    try {
      watch = RelayWatch.start(settings, kernel.name, deadline);
      relay = new Relay(settings, arena, kernel, deadline, watch?.view);
      return await relay.#serve(signal);
    } finally {
      relay?.tagger.close();
      await watch?.close();
      await kernel.close();
    }
  }

  // What a rank's port asks.

  get salt(): Uint8Array {
    return this.#settings.salt;
  }

  get terms(): Terms {
    return this.#settings.terms ?? TERMS;
  }

  get ceiling(): number {
    return this.#settings.frameCeilingBytes;
  }

  get frameMs(): number {
    return this.#settings.roundDeadlineMs;
  }

  slot(rank: number): FrameSlot {
    let slot = this.#slots.get(rank);
    if (slot === undefined) this.#slots.set(rank, slot = new FrameSlot(this.#arena));
    return slot;
  }

  admit(handshake: RankHandshake, port: RankPort): Promise<void> {
    return this.#door.admit(handshake, port);
  }

  arriving(rank: number, ...what: Parameters<Arriving>): void {
    this.#folder.arriving(rank, ...what, (): EagerEnd | undefined => {
      if (!this.#outFree) return undefined;
      this.#held = false;
      return { ...this.#recordEnd, divide: false };
    });
  }

  begins(rank: number): void {
    this.#clock.begins(rank);
    this.#observer?.frameBegins(rank);
  }

  altered(rank: number, values: number): void {
    this.#folder.disturbed(rank);
    this.#observer?.replaced(rank, values);
  }

  maySend(rank: number): boolean {
    return this.#barrier.maySend(rank);
  }

  deliver(rank: number, header: FrameHeader): void {
    this.#barrier.deliver(rank, { bytes: this.slot(rank).frame, header });
    this.#clock.arrives(rank);
    this.#observer?.delivered(rank, header.length);
    this.#watchRound();
    this.#sitting.pump();
  }

  left(port: RankPort, clean: boolean, reason: string, refused?: RefusalCause): void {
    const { rank } = port;
    if (refused !== undefined && !this.#sitting.over) {
      this.#observer?.refused(port.peer, rank, reason, refused === "nonfinite");
    }
    if (rank === undefined) {
      // Refused, or gone before it was let in.
      this.#strangers.tell(port.peer, reason, performance.now());
      const waited = this.#door.leave(port);
      if (waited !== undefined) this.#roll.turnedAway(waited);
      return;
    }
    this.#door.leave(port);
    this.#drop(rank, clean, reason);
  }

  // What the channel to the controller asks.

  get vacant(): boolean {
    return this.#barrier.deserted && !this.#lifeline.pending && !this.#barrier.complete &&
      !this.#door.isCrowded;
  }

  get deserted(): boolean {
    return this.vacant && !this.#hope.alive;
  }

  introduction(): { ranks: readonly number[]; narrow: boolean } {
    return { ranks: this.#roll.call(this.#door.ranks), narrow: this.#narrow };
  }

  connected(again: boolean, underWay: boolean): void {
    const barrier = this.#barrier;
    if (again && barrier.phase === "sealed") barrier.unseal();
    if (underWay) this.#waitForNobody();
    // Who came between Hello and its answer is not told of yet.
    if (this.#roll.isStale) this.#introduce();
    this.#roll.tellDue();
    if (barrier.open) this.#door.open();
    this.#sitting.pump();
  }

  expectResult(): FrameSlot {
    if (this.#barrier.phase !== "sealed" || this.#sent === undefined) {
      const { round } = this.#barrier;
      const text = `the controller sent a result in round ${round} before this host's frame`;
      throw new WireError("message", "connection", text);
    }
    return this.#out;
  }

  result(header: FrameHeader): void {
    const { round } = this.#barrier;
    const difference = schemaDifference(header, this.#sent!, { anyDtype: this.#narrow });
    if (difference !== undefined) {
      const text = `reading the result of round ${round} from the controller: ${difference}`;
      throw new WireError("schema", "connection", text);
    }
    clearTimeout(this.#resultTimer);
    this.#sent = undefined;
    this.#held = header.kind === "model" && header.weight > 0;
    // The round is closed before its results leave: a quick rank's next frame may come at once.
    this.#barrier.close();
    this.#outcome.rounds++;
    const { prefixed } = this.#out;
    encodeLength(prefixed, 0, header.length);
    const { live } = this.#barrier;
    this.#observer?.closed(header, live.length);
    this.#resultsOut = Promise.all(
      live.map((rank) => this.#door.port(rank)!.sendResult(prefixed, round)),
    );
    this.#freeAfter(this.#resultsOut);
    this.#log.debug("round {round} closed with mass {mass}", () => ({
      round,
      mass: header.weight,
    }));
    this.#door.open();
    this.#sitting.pump();
  }

  declareDead(rank: number): void {
    const state = this.#barrier.state(rank);
    if (this.#barrier.phase === "sealed" || state === "delivered" || state === "gone") return;
    this.#expel(rank, `the controller declared rank ${rank} dead: it was too late`);
  }

  async #serve(signal: AbortSignal): Promise<RelayOutcome> {
    signal.throwIfAborted();
    const listener = (this.#settings.ranksNetwork ?? tcp).listen(this.#settings.listen);
    const { address } = listener;
    const place = { ranks: this.#settings.ranks.join(","), address: formatAddress(address) };
    this.#log.info("accepting ranks {ranks} on {address}", place);
    try {
      await this.#sitting.serve(listener, signal, () => {
        this.#settings.onListening(address);
        this.#observer?.listening(place.address);
        this.#sitting.track(this.#lifeline.run().then(() => this.#hope.end()));
        this.#joinTimer = setTimeout(() => this.#giveUpAbsent(), this.#settings.joinDeadlineMs);
      });
      return this.#outcome;
    } finally {
      clearTimeout(this.#joinTimer);
      clearTimeout(this.#resultTimer);
      this.#clock.stop();
      this.#hope.renew(0);
    }
  }

  /** A rank takes part from here on; at once, so that no frame comes between. */
  #enter(rank: number, port: RankPort): void {
    const { peer } = port;
    if (this.#sitting.over) {
      const text = `letting in rank ${rank}: the session is over`;
      throw new WireError("membership", "connection", text);
    }
    const returns = this.#barrier.state(rank) === "gone";
    this.#barrier.join(rank);
    this.#hope.renew(0);
    port.enter(rank);
    if (port.asks) this.#catchUp(port);
    if (returns) {
      // Before the controller has heard of it, there is no exit to take back.
      if (this.#lifeline.up) this.#introduce();
      else this.#roll.takeBack(rank);
    }
    this.#log.info("rank {rank} joined from {peer}", { rank, peer });
    this.#observer?.rankJoined(rank, peer);
    this.#watchRound();
  }

  /** How the host's frame leaves. */
  get #recordEnd(): RecordEnd {
    return { kind: "host_frame", tagger: this.tagger, plain: !this.#lifeline.sealed };
  }

  /** Whether a rank can have the consensus, if it asks. */
  #isReady(port: RankPort): boolean {
    const { up, rounds } = this.#lifeline;
    if (!port.asks || up && (rounds === 0 || this.#held)) return true;
    if (up && this.#barrier.live.length === 0) throw nothingHeld(rounds, port.peer);
    return false;
  }

  /** Gives a rank the consensus; until it has it, the slot is not written. */
  #catchUp(port: RankPort): void {
    const frame = this.#held ? this.#out.frame : undefined;
    const given = port.catchUp({ rounds: this.#lifeline.rounds, frame });
    this.#resultsOut = Promise.all([this.#resultsOut, given]);
    this.#freeAfter(this.#resultsOut);
  }

  /** The slot of the result is free once nobody reads it any more. */
  #freeAfter(reading: Promise<unknown>): void {
    this.#outFree = false;
    void reading.then(() => this.#outFree ||= reading === this.#resultsOut);
  }

  /** The session is over: whoever is here learns why. */
  #part(error: unknown): void {
    this.#observer?.ended(error);
    this.#lifeline.close();
    const reason = error === undefined
      ? "the session is over"
      : `the relay of host ${this.#settings.host} ended: ${
        error instanceof Error ? error.message : String(error)
      }`;
    this.#door.close(reason, (task) => this.#sitting.track(task));
  }

  /** Folds what is ready and sends the round up when it is complete. */
  async #turn(): Promise<void> {
    await this.#resultsOut;
    if (this.#barrier.phase === "sealed") return;
    await this.#folder.absorb();
    if (this.#barrier.complete) await this.#ship();
    else if (this.#barrier.deserted && !this.#hope.alive) await this.#finish();
  }

  async #ship(): Promise<void> {
    this.#clock.stop();
    const lifeline = this.#lifeline;
    if (!lifeline.up) return;
    for (const { member, difference, reference } of this.#folder.settle()) {
      const { message } = schemaError(`rank ${member}`, difference, `rank ${reference}`);
      // Whoever has left since is out already, and its next connection not to blame.
      if (this.#barrier.state(member) !== "gone") this.#expel(member, message);
      else this.#log.warn("{message}", { message });
    }
    const barrier = this.#barrier;
    const { live } = barrier;
    const narrow = live.length > 0 && live.every((rank) => this.#door.port(rank)?.narrow);
    if (narrow !== this.#narrow) {
      this.#narrow = narrow;
      this.#introduce();
    }
    // Rounded once on the way up, by the ranks: the host's sum goes on in f32.
    const header = await this.#folder.finish(this.#recordEnd, { divide: false, narrow: false });
    const timed = this.#clock.close(header.kind);
    barrier.seal();
    this.#sent = header;
    const { round } = barrier;
    this.#observer?.shipped({ round, header, timed });
    this.#log.debug("round {round}: {kind} of {ranks} goes up with mass {mass}, {lag} ms apart", {
      round,
      kind: header.kind,
      ranks: timed.frames.map(({ member }) => member).join(","),
      mass: header.weight,
      lag: Math.round(timed.lagMs),
    });
    const sending = lifeline.ship(this.#out.record);
    this.#roll.tellAll();
    // An exit that was told last must not hide that the rank is back already.
    if (this.#door.isCrowded) this.#introduce();
    const limit = controllerLimit(this.#settings);
    clearTimeout(this.#resultTimer);
    this.#resultTimer = setTimeout(() => {
      this.#sitting.end(
        new WireError(
          "membership",
          "connection",
          `waiting for the result of round ${barrier.round} from the controller: nothing came ` +
            `within ${limit} ms`,
        ),
      );
    }, limit);
    await sending;
  }

  /** Everybody has left: says so to the controller, and ends. */
  async #finish(): Promise<void> {
    const lifeline = this.#lifeline;
    if (!lifeline.up && !lifeline.over) return;
    this.#roll.tellAll();
    await this.#roll.goodbye;
    this.#sitting.end();
  }

  /** Tells the controller anew who is here. */
  #introduce(): void {
    if (this.#lifeline.up) this.#sitting.track(this.#lifeline.introduce());
  }

  /** Takes a rank out of the session and tells the controller. */
  #drop(rank: number, clean: boolean, reason: string): void {
    const inRound = this.#barrier.leave(rank);
    this.#clock.leaves(rank);
    if (!inRound) this.#folder.disturbed(rank);
    (clean ? this.#outcome.left : this.#outcome.lost).push(rank);
    const { round } = this.#barrier;
    if (this.#sitting.over) return;
    this.#observer?.rankGone(rank, !clean, reason);
    if (clean) this.#log.info("rank {rank} left after {round} rounds", { rank, round });
    else {
      this.#log.warn("rank {rank} is out in round {round}: {reason}; {kept}", {
        rank,
        round,
        reason,
        kept: inRound ? "its frame stays in the round" : "the round goes on without it",
      });
    }
    const { returnDeadlineMs = 0 } = this.#settings;
    if (this.#barrier.deserted) this.#hope.renew(clean ? 0 : returnDeadlineMs);
    this.#roll.left(rank, inRound);
    this.#watchRound();
    this.#sitting.pump();
  }

  /** The session goes on without this host's ranks: each enters when it comes, and holds nobody up. */
  #waitForNobody(): void {
    const barrier = this.#barrier;
    const absent = barrier.awaited.filter((rank) => barrier.state(rank) === "expected");
    for (const rank of absent) barrier.leave(rank);
    if (barrier.deserted) this.#hope.renew(this.#settings.joinDeadlineMs);
    this.#roll.tell(absent.filter((rank) => this.#door.port(rank) === undefined));
  }

  /** Refuses a rank, connected or not. */
  #expel(rank: number, reason: string): void {
    const port = this.#door.port(rank);
    if (port === undefined) this.#drop(rank, false, reason);
    else this.#sitting.track(port.refuse(reason));
  }

  #giveUpAbsent(): void {
    const { joinDeadlineMs } = this.#settings;
    for (const rank of this.#barrier.awaited) {
      if (this.#barrier.state(rank) !== "expected") continue;
      this.#drop(rank, false, `it did not connect within ${joinDeadlineMs} ms`);
    }
  }

  /** Starts the round's clock at its first frame, once every rank is there or given up. */
  #watchRound(): void {
    const barrier = this.#barrier;
    const [first] = barrier.contributors;
    if (barrier.phase === "sealed" || first === undefined) return;
    if (barrier.awaited.some((rank) => barrier.state(rank) === "expected")) return;
    this.#clock.start(barrier.frame(first).header.kind);
  }

  /** Gives up the ranks that have not delivered. */
  #tooLate(deadlineMs: number): void {
    const { awaited, round } = this.#barrier;
    const waitedMs = Math.round(deadlineMs);
    this.#observer?.late(awaited, waitedMs);
    for (const rank of awaited) {
      this.#expel(rank, `it did not deliver within ${waitedMs} ms of round ${round}'s first frame`);
    }
  }
}
