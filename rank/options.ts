/**
 * What a rank is told.
 *
 * @module
 */
import { readEnvironment } from "../cli/environment.ts";
import { nodeTcp } from "../transport/node_tcp.ts";
import { type Network, tcp } from "../transport/network.ts";
import type { Address } from "../transport/tcp.ts";
import { MAX_WORLD_SIZE, SALT_BYTES } from "../wire/limits.ts";
import { saltWeakness } from "../wire/salt.ts";
import { launchPlace } from "./launch.ts";
import { normalizeTensors, type Tensor, type TensorLike } from "./tensors.ts";

/** A timer set for longer than this would fire at once, in milliseconds. */
const LONGEST_TIMER_MS = 2 ** 31 - 1;

/** How to reach a relay, and who asks. */
export interface RankOptions {
  /** The relay of this host, `HOST:PORT`; TIERFOLD_RELAY when left out. */
  relay?: string;
  /** This rank's number, from 0, below `worldSize`; as {@link launchPlace} finds it when left out. */
  rank?: number;
  /** How many ranks the session has; as {@link launchPlace} finds it when left out. */
  worldSize?: number;
  /** The session salt: 16 bytes, or 32 hex digits. */
  salt: Uint8Array | string;
  /**
   * In which form Model rounds travel; "f32" when left out. "bf16" halves the bytes between rank and
   * relay, and on the way down everywhere once all ranks ask for it; values are rounded to nearest even
   * once on the way up and once on the way down, and summed in f32. It takes a relay that speaks protocol
   * 3. Control rounds are always f32.
   */
  wire?: "f32" | "bf16";
  /**
   * Asks for the consensus before the first round, and gives the tensors of a Model round to write it into;
   * see {@link RankClient.consensus}. It takes a relay of Tierfold.
   */
  catchUp?: readonly TensorLike[];
  /**
   * Binds the connection to nonces of both ends, so that a recorded one cannot be played again, and proves
   * to the relay before it lets this rank in that it has the salt; false when left out. It takes a relay of
   * Tierfold.
   */
  seal?: boolean;
  /** How the relay is reached; TCP when left out. */
  network?: Pick<Network, "connect">;
  /** How long to try to reach the relay and be let in, in milliseconds; 60,000 when left out. */
  joinTimeoutMs?: number;
  /** How long a round may take, in milliseconds; 900,000 when left out. */
  roundTimeoutMs?: number;
}

/** Options checked, with all that was left out filled in. */
export interface RankSettings {
  relay: Address;
  rank: number;
  worldSize: number;
  salt: Uint8Array;
  wire: "f32" | "bf16";
  catchUp: Tensor[] | undefined;
  seal: boolean;
  network: Pick<Network, "connect">;
  joinTimeoutMs: number;
  roundTimeoutMs: number;
}

/**
 * Checks options and fills in what was left out.
 *
 * @throws {RangeError} when one is not usable.
 */
export function checkOptions(options: RankOptions): RankSettings {
  const { wire = "f32" } = options;
  const { rank, worldSize } = place(options);
  if (!Number.isInteger(worldSize) || worldSize < 1 || worldSize > MAX_WORLD_SIZE) {
    throw new RangeError(
      `connecting a rank: world size ${worldSize}, expected 1 to ${MAX_WORLD_SIZE}`,
    );
  }
  if (!Number.isInteger(rank) || rank < 0 || rank >= worldSize) {
    throw new RangeError(`connecting a rank: rank ${rank}, expected 0 to ${worldSize - 1}`);
  }
  if (wire !== "f32" && wire !== "bf16") {
    throw new RangeError(`connecting a rank: wire ${JSON.stringify(wire)}, expected f32 or bf16`);
  }
  return {
    relay: parseAddress(options.relay ?? relayFromEnvironment()),
    rank,
    worldSize,
    salt: goodSalt(saltBytes(options.salt)),
    wire,
    catchUp: options.catchUp && normalizeTensors(options.catchUp),
    seal: options.seal ?? false,
    network: options.network ?? (typeof Deno === "undefined" ? nodeTcp : tcp),
    joinTimeoutMs: timeout("joinTimeoutMs", options.joinTimeoutMs, 60_000),
    roundTimeoutMs: timeout("roundTimeoutMs", options.roundTimeoutMs, 900_000),
  };
}

/** Rank and world size as they are given, else as the environment has them. */
function place(options: RankOptions): { rank: number; worldSize: number } {
  const { rank, worldSize } = options;
  if (rank !== undefined && worldSize !== undefined) return { rank, worldSize };
  return launchPlace({ rank, worldSize });
}

function relayFromEnvironment(): string {
  const relay = readEnvironment("TIERFOLD_RELAY")?.trim() ?? "";
  if (relay !== "") return relay;
  throw new RangeError(
    "connecting a rank: nobody names the relay of this host: give its address, or set TIERFOLD_RELAY " +
      "(seen only with --allow-env)",
  );
}

function timeout(name: string, given: number | undefined, fallback: number): number {
  const ms = given ?? fallback;
  if (!(ms >= 1 && ms <= LONGEST_TIMER_MS)) {
    throw new RangeError(
      `connecting a rank: ${name} ${ms}, expected 1 to ${LONGEST_TIMER_MS} milliseconds`,
    );
  }
  return ms;
}

function saltBytes(salt: Uint8Array | string): Uint8Array {
  if (typeof salt === "string") {
    if (!/^[0-9a-fA-F]{32}$/.test(salt.trim())) {
      throw new RangeError(
        `connecting a rank: the salt has ${salt.trim().length} characters, expected 32 hex digits`,
      );
    }
    return Uint8Array.from(salt.trim().match(/../g) ?? [], (pair) => parseInt(pair, 16));
  }
  if (salt.length !== SALT_BYTES) {
    throw new RangeError(`connecting a rank: the salt has ${salt.length} bytes, expected 16`);
  }
  return Uint8Array.from(salt);
}

function goodSalt(salt: Uint8Array): Uint8Array {
  const weakness = saltWeakness(salt);
  if (weakness === undefined) return salt;
  throw new RangeError(
    `connecting a rank: the salt could be guessed: ${weakness}; make one with openssl rand -hex 16`,
  );
}

function parseAddress(text: string): Address {
  const match = /^(?:\[([^\]]+)\]|([^:\s[\]]+)):(\d{1,5})$/.exec(text);
  const port = Number(match?.[3]);
  if (!match || port < 1 || port > 65_535) {
    throw new RangeError(
      `connecting a rank: relay address ${
        JSON.stringify(text)
      }, expected HOST:PORT, an IPv6 address ` +
        "in brackets",
    );
  }
  return { hostname: (match[1] ?? match[2])!, port };
}
