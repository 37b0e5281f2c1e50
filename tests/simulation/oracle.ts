// Knows what every frame held, and says of every result whether it is the sum of exactly the frames that
// its mass names.
//
// A Model frame of rank q has the mass 2^(q + 6 c), c being one of three: the bits of a total name the
// ranks in it. Its first tensor holds the code of the frame at place q and zeros elsewhere, so that the
// result says which frame of whom is in it. Its second tensor holds values whose sum depends on the order
// in which they are added.
import { type Operation, type Plan } from "./plan.ts";
import { Random } from "./random.ts";

const RANKS = 6;
/** How many masses a rank can have, besides 0. */
const CLASSES = 3;
/** Codes of frames: few enough to survive bf16. */
const CODES = 128;

/** One frame that a rank tries to have folded. */
export interface Attempt {
  readonly rank: number;
  /** From 1, for each rank. */
  readonly id: number;
  /** What its tensors call it, from 1; comes again after 128 frames. */
  readonly code: number;
  readonly index: number;
  readonly operation: Operation;
  readonly mass: number;
  /** The tensors as they were sent. */
  readonly tensors: readonly Float32Array[];
  /** Whether it must never be in a result. */
  readonly poison: boolean;
  /** Whether its shape is not that of the others. */
  readonly odd: boolean;
  /** The contributors of the round that it was in, once some result says so. */
  round?: string;
  /** How the result of that round came, where that makes a difference. */
  form?: string;
}

/** What a rank got. */
export interface Outcome {
  readonly mass: number;
  readonly tensors: readonly Float32Array[];
}

const { fround } = Math;
const bits = (values: Float32Array) =>
  new Uint32Array(values.buffer, values.byteOffset, values.length);

const scratch = new Float32Array(1);
const scratchBits = bits(scratch);

/** Rounded to bf16, to nearest, ties to even. */
function toBf16(value: number): number {
  scratch[0] = value;
  const raw = scratchBits[0]!;
  scratchBits[0] = (raw + 0x7fff + ((raw >>> 16) & 1)) & 0xffff0000;
  return scratch[0]!;
}

function same(a: Float32Array, b: Float32Array): boolean {
  const [left, right] = [bits(a), bits(b)];
  return left.length === right.length && left.every((value, i) => value === right[i]);
}

/** The controller's life before anything happened to it. */
const FIRST_CONTROLLER = "controller#1";

/** Judges results. */
export class Oracle {
  readonly #plan: Plan;
  readonly #attempts: Attempt[][];
  readonly #violations: string[];
  /** Hosts in the order of the fold. */
  readonly #hosts: readonly (readonly number[])[];
  /** The present life of a process, by its name; undefined while it is down. */
  readonly #life: (name: string) => string | undefined;
  /** By round: the life of the controller that closed it, and of the relays that had its result. */
  readonly #witnesses = new Map<string, { controller: string | undefined; relays: Set<string> }>();
  /** Results that were checked. */
  results = 0;

  /**
   * @param violations Where what is wrong is put down.
   * @param life The present life of a process, by its name; undefined while it is down.
   */
  constructor(plan: Plan, violations: string[], life: (name: string) => string | undefined) {
    this.#plan = plan;
    this.#life = life;
    this.#violations = violations;
    this.#attempts = Array.from({ length: plan.worldSize }, () => []);
    this.#hosts = [...plan.hosts].sort((a, b) => a[0]! - b[0]!);
  }

  /** A rank's next frame. */
  attempt(rank: number, index: number, how: { nan: boolean; odd: boolean }): Attempt {
    const plan = this.#plan;
    const { operations } = plan;
    const operation = operations[index % operations.length]!;
    const id = this.#attempts[rank]!.length + 1;
    const random = new Random(plan.seed, 0x6174, rank, id);
    const mass = massOf(operation, rank, plan.idle, random);
    const size = plan.size + (how.odd ? 1 : 0);
    // Broadcasts differ in shape from all else and from each other: a rank that takes one round for another
    // must be refused, not added.
    const width = operation.kind === "broadcast" ? RANKS + 1 + operation.root : 0;
    const who = new Float32Array(plan.worldSize + width);
    const code = (id - 1) % CODES + 1;
    who[rank] = code;
    const tensors = [who];
    if (operation.kind !== "counts") {
      tensors.push(Float32Array.from({ length: size }, () => anyValue(random)));
    }
    // Zero mass multiplies: nothing of the tensors travels in a Model round.
    const poison = how.nan && operation.kind !== "counts" &&
      !(operation.kind === "model" && mass === 0) &&
      !(operation.kind === "broadcast" && operation.root !== rank);
    if (poison) tensors[1]![random.int(0, size - 1)] = random.pick([NaN, Infinity, -Infinity]);
    const odd = how.odd && operation.kind !== "counts";
    const attempt = { rank, id, code, index, operation, mass, tensors, poison, odd };
    this.#attempts[rank]!.push(attempt);
    return attempt;
  }

  /** Judges what a rank got for its frame. */
  judge(attempt: Attempt, outcome: Outcome): void {
    this.results++;
    const wrong = (text: string) => {
      this.#violations.push(
        `rank ${attempt.rank}, frame ${attempt.id} (${attempt.operation.kind}), mass ` +
          `${outcome.mass}: ${text}`,
      );
    };
    if (attempt.operation.kind === "broadcast") this.#judgeBroadcast(attempt, outcome, wrong);
    else if (attempt.operation.kind === "model") this.#judgeModel(attempt, outcome, wrong);
    else this.#judgeSum(attempt, outcome, wrong);
  }

  #judgeModel(attempt: Attempt, outcome: Outcome, wrong: (text: string) => void): void {
    const { mass } = outcome;
    if (mass === 0) {
      if (attempt.mass !== 0) wrong("its own frame is not in the result");
      if (!attempt.tensors.every((tensor, i) => same(tensor, outcome.tensors[i]!))) {
        wrong("no mass was accepted, yet its tensors have changed");
      }
      return;
    }
    const ids = new Map<number, number>();
    for (let e = 0, rest = mass; rest > 0; e++, rest = Math.floor(rest / 2)) {
      if (rest % 2 === 0) continue;
      const rank = e % RANKS;
      if (ids.has(rank)) return wrong(`rank ${rank} is in the mass twice`);
      ids.set(rank, this.#id(rank, Math.round(outcome.tensors[0]![rank]! * mass / 2 ** e)));
    }
    const frames = this.#frames(attempt, ids, wrong);
    if (frames === undefined) return;
    this.#compare(attempt, outcome, frames, fround(1 / mass), wrong);
  }

  #judgeSum(attempt: Attempt, outcome: Outcome, wrong: (text: string) => void): void {
    const ids = new Map<number, number>();
    outcome.tensors[0]!.forEach((code, rank) => {
      if (code !== 0) ids.set(rank, this.#id(rank, code));
    });
    const frames = this.#frames(attempt, ids, wrong);
    if (frames !== undefined) this.#compare(attempt, outcome, frames, undefined, wrong);
  }

  #judgeBroadcast(attempt: Attempt, outcome: Outcome, wrong: (text: string) => void): void {
    const { operation } = attempt;
    if (operation.kind !== "broadcast") return;
    const { root } = operation;
    if (outcome.mass !== 1) wrong("expected the mass of the root, 1");
    const id = this.#id(root, outcome.tensors[0]![root]!);
    const source = this.#attempts[root]![id - 1];
    if (source === undefined) return wrong(`the root has no frame ${id}`);
    if (attempt.rank === root && id !== attempt.id) return wrong(`frame ${id} came instead`);
    if (source.poison) wrong(`frame ${id} of the root should have been refused`);
    if (!source.tensors.every((tensor, i) => same(tensor, outcome.tensors[i]!))) {
      wrong(`not the bits of frame ${id} of the root`);
    }
  }

  /** The latest frame of a rank with that code. */
  #id(rank: number, code: number): number {
    const last = this.#attempts[rank]!.length;
    return code < 1 || code > CODES ? 0 : last - ((last - code) % CODES + CODES) % CODES;
  }

  /** The frames that a result names, by rank; undefined when they cannot be in it together. */
  #frames(
    attempt: Attempt,
    ids: ReadonlyMap<number, number>,
    wrong: (text: string) => void,
  ): Map<number, Attempt> | undefined {
    const frames = new Map<number, Attempt>();
    for (const [rank, id] of ids) {
      const frame = this.#attempts[rank]?.[id - 1];
      if (frame === undefined) {
        wrong(`rank ${rank} is in it with frame ${id}, which it has not sent`);
        return undefined;
      }
      if (frame.operation.kind !== attempt.operation.kind || frame.odd !== attempt.odd) {
        wrong(`frame ${id} of rank ${rank} is in it, which does not fit`);
        return undefined;
      }
      if (frame.poison) wrong(`frame ${id} of rank ${rank} should have been refused`);
      frames.set(rank, frame);
    }
    const own = ids.get(attempt.rank);
    const counts = attempt.operation.kind !== "model" || attempt.mass > 0;
    if (counts && own !== attempt.id) wrong(`its own frame is not in it, but ${own ?? "none"}`);
    // Whoever shares a frame shares the round: this is what agreement means.
    const round = [...ids].sort(([a], [b]) => a - b).map((one) => one.join(":")).join(",");
    this.#remember(round, attempt.rank);
    for (const frame of frames.values()) {
      if (frame.round !== undefined && this.#forgotten(frame.round)) frame.round = round;
      frame.round ??= round;
      if (frame.round !== round) {
        wrong(
          `frame ${frame.id} of rank ${frame.rank} is in it with ${round}, and elsewhere with ` +
            frame.round,
        );
      }
    }
    return frames;
  }

  /** A rank has the result of a round, and so has its relay. */
  #remember(round: string, rank: number): void {
    const index = this.#plan.hosts.findIndex((ranks) => ranks.includes(rank));
    const name = `relay${index}`;
    let witness = this.#witnesses.get(round);
    if (witness === undefined) {
      witness = { controller: this.#life("controller"), relays: new Set() };
      this.#witnesses.set(round, witness);
    }
    witness.relays.add(`${name} ${this.#life(name)}`);
  }

  /**
   * Whether nobody is left who could tell a new controller that a round has closed: then the work of those
   * who did not get its result counts again.
   */
  #forgotten(round: string): boolean {
    const { controller, relays } = this.#witnesses.get(round)!;
    return controller !== this.#life("controller") &&
      ![...relays].some((one) => {
        const [name, life] = one.split(" ");
        return this.#life(name!) === life;
      });
  }

  /** Conservation: the result is the fold of these frames, bit for bit. */
  #compare(
    attempt: Attempt,
    outcome: Outcome,
    frames: ReadonlyMap<number, Attempt>,
    factor: number | undefined,
    wrong: (text: string) => void,
  ): void {
    let mass = 0;
    for (const frame of frames.values()) mass += frame.mass;
    if (mass !== outcome.mass) wrong(`its frames weigh ${mass}`);
    let [wide, narrow] = [false, false];
    let form: string | undefined;
    for (const [order, hosts] of this.#orders().entries()) {
      const sums = attempt.tensors.map((_, i) => this.#fold(frames, i, factor, hosts));
      wide = sums.every((sum, i) => same(sum, outcome.tensors[i]!));
      // A rank that takes bf16 may get it.
      narrow = factor !== undefined && this.#plan.wires[attempt.rank] === "bf16" &&
        sums.every((sum, i) => same(sum.map(toBf16), outcome.tensors[i]!));
      if (!wide && !narrow) continue;
      form = `${wide ? "f32" : "bf16"}${order === 0 ? "" : `, order ${order}`}`;
      break;
    }
    if (form === undefined) {
      const names = [...frames].map(([rank, { id }]) => `${rank}:${id}`).join(" ");
      return wrong(`it is not the fold of ${names} in the order of ranks`);
    }
    if (wide && narrow) return;
    // All in a round get the same bits.
    for (const frame of frames.values()) {
      frame.form ??= form;
      if (frame.form !== form) wrong(`it came as ${form}, and to others as ${frame.form}`);
    }
  }

  /**
   * The orders in which hosts may be folded: that of their lowest ranks. A controller that was started again
   * knows a host by the lowest of those ranks that were there when its relay came back.
   */
  #orders(): (readonly (readonly number[])[])[] {
    if (this.#life("controller") === FIRST_CONTROLLER) return [this.#hosts];
    const orders = new Map<string, readonly (readonly number[])[]>();
    const choose = (keys: readonly number[]): void => {
      const ranks = this.#hosts[keys.length];
      if (ranks !== undefined) return ranks.forEach((rank) => choose([...keys, rank]));
      const hosts = this.#hosts
        .map((host, i) => ({ host, key: keys[i]! }))
        .sort((a, b) => a.key - b.key)
        .map(({ host }) => host);
      orders.set(JSON.stringify(hosts), hosts);
    };
    choose([]);
    return [...orders.values()];
  }

  #fold(
    frames: ReadonlyMap<number, Attempt>,
    tensor: number,
    factor: number | undefined,
    hosts: readonly (readonly number[])[],
  ): Float32Array {
    const [first] = frames.values();
    const { length } = first?.tensors[tensor] ?? [];
    const total = new Float32Array(length);
    for (const ranks of hosts) {
      const sum = new Float32Array(length);
      for (const rank of ranks) {
        const frame = frames.get(rank);
        if (frame === undefined) continue;
        const scale = factor === undefined ? 1 : frame.mass;
        const narrow = factor !== undefined && this.#plan.wires[rank] === "bf16";
        const values = frame.tensors[tensor]!;
        for (let j = 0; j < length; j++) {
          const value = fround(values[j]! * scale);
          sum[j]! += narrow ? toBf16(value) : value;
        }
      }
      for (let j = 0; j < length; j++) total[j]! += sum[j]!;
    }
    return factor === undefined ? total : total.map((value) => fround(value * factor));
  }
}

function massOf(operation: Operation, rank: number, idle: number, random: Random): number {
  if (operation.kind === "counts") return 0;
  if (operation.kind === "broadcast") return operation.root === rank ? 1 : 0;
  return random.chance(idle) ? 0 : 2 ** (rank + RANKS * random.int(0, CLASSES - 1));
}

/** A value of any size: the sum of some of them depends on their order. */
function anyValue(random: Random): number {
  return random.int(-4_095, 4_095) * 2 ** random.int(-8, 8);
}
