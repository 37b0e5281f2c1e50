// One hostile connection: a changed conversation, the way it is sent, and how it ends.
import * as fc from "fast-check";
import { pause, unlessLater } from "../cluster/waiting.ts";
import { share } from "./bytes.ts";
import { type Change, change, changed, type Conversation, type Leg } from "./conversation.ts";

/** How long an answer is waited for before the conversation goes on without it, in milliseconds. */
const ANSWER_MS = 250;

/** How many connections come together. */
export const ATTACKS = 16;

/** One connection. */
export interface Attack {
  /** Which conversation, as a share of all. */
  readonly conversation: number;
  readonly changes: readonly Change[];
  /** Sometimes a rank's conversation goes to the controller, and a relay's to a relay. */
  readonly wrongDoor: boolean;
  /** All at once, or in small pieces with pauses. */
  readonly trickle: boolean;
  /** Whether it waits for the other end to close, says that it has ended, or just goes. */
  readonly ending: "waits" | "half-closes" | "goes";
  /** When it starts, in milliseconds. */
  readonly after: number;
}

/** Attacks that come together; drawn from one seed. */
export const attacks: fc.Arbitrary<readonly Attack[]> = fc.array(
  fc.record({
    conversation: share,
    changes: fc.array(change, { minLength: 1, maxLength: 2 }),
    wrongDoor: fc.noBias(fc.nat(15)).map((n) => n === 0),
    trickle: fc.noBias(fc.nat(7)).map((n) => n === 0),
    ending: fc.constantFrom<Attack["ending"]>("waits", "half-closes", "goes"),
    after: fc.noBias(fc.nat(200)),
  }),
  { minLength: ATTACKS, maxLength: ATTACKS },
);

/** A conversation that can be attacked with. */
export interface Script {
  readonly leg: Leg;
  readonly conversation: Conversation;
}

/** Where a leg's servers are. */
export type Doors = Readonly<Record<Leg, string>>;

/**
 * Plays one attack to its end, within seconds.
 *
 * @param reseal Whether edited messages may be signed anew.
 * @returns Whether the other end closed first.
 */
export async function play(
  attack: Attack,
  scripts: readonly Script[],
  doors: Doors,
  reseal: boolean,
): Promise<boolean> {
  const { leg, conversation } = scripts[Math.floor(attack.conversation * scripts.length)]!;
  const others = scripts.map((script) => script.conversation);
  const messages = changed(leg, conversation, attack.changes, others, reseal);
  const door = doors[attack.wrongDoor ? (leg === "rank" ? "relay" : "rank") : leg];
  const [hostname, port] = door.split(":");
  await pause(attack.after);
  return await say(
    await Deno.connect({ hostname: hostname!, port: Number(port) }),
    messages,
    attack,
  );
}

/**
 * Says a conversation on a connection, and closes it.
 *
 * @returns Whether the other end closed first.
 */
export async function say(
  conn: Deno.TcpConn,
  messages: Conversation,
  attack: Pick<Attack, "trickle" | "ending">,
): Promise<boolean> {
  const ear = new Ear(conn);
  try {
    for (const { bytes, heard } of messages) {
      await ear.heard(heard);
      if (ear.over) break;
      await write(conn, bytes, attack.trickle);
    }
    if (attack.ending === "half-closes") await conn.closeWrite();
    if (attack.ending !== "goes") await unlessLater(ANSWER_MS, ear.end);
  } catch {
    // The other end has closed in the middle of it, as it should.
  }
  const theirs = ear.over;
  try {
    conn.close();
  } catch {
    // Broken already.
  }
  await ear.end;
  return theirs;
}

async function write(conn: Deno.TcpConn, bytes: Uint8Array, trickle: boolean): Promise<void> {
  let rest = Uint8Array.from(bytes);
  for (let pieces = 0; rest.length > 0; pieces++) {
    // Byte by byte at first: the lengths and headers, not all of a long message.
    const some = trickle && pieces < 60 ? rest.subarray(0, 1) : rest;
    rest = rest.subarray(await conn.write(some));
    if (trickle && pieces < 60) await pause(2);
  }
}

/** Reads what the other end says and counts it. */
class Ear {
  /** Whether the other end has closed, or broken off. */
  over = false;
  readonly end: Promise<void>;
  #count = 0;
  #wake = Promise.withResolvers<void>();

  constructor(conn: Deno.TcpConn) {
    this.end = this.#listen(conn);
  }

  /** Waits until so many bytes have come, but not for long. */
  async heard(count: number): Promise<void> {
    const end = Date.now() + ANSWER_MS;
    while (this.#count < count && !this.over && Date.now() < end) {
      await unlessLater(end - Date.now(), this.#wake.promise);
    }
  }

  async #listen(conn: Deno.TcpConn): Promise<void> {
    const chunk = new Uint8Array(4096);
    try {
      for (let got = await conn.read(chunk); got !== null; got = await conn.read(chunk)) {
        this.#count += got;
        this.#wake.resolve();
        this.#wake = Promise.withResolvers();
      }
    } catch {
      // Closed by us, or reset by them.
    }
    this.over = true;
    this.#wake.resolve();
  }
}
