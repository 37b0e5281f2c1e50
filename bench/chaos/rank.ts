/**
 * One rank of a chaos run: rounds without end, each result checked to the last bit; when its relay is
 * lost it comes back by itself. Says one line of JSON per round, and ends when its standard input does.
 *
 *     TIERFOLD_SALT=... deno run rank.ts RANK RELAY FIRST_COUNT VALUES
 *
 * @module
 */
import { RankClient } from "../../rank/client.ts";
import { fill, massOf, readResult, WORLD } from "./values.ts";

/** What a rank says. */
export type RankLine =
  /** It was let in. */
  | { readonly kind: "joined" }
  /** A round is over; times are milliseconds since 1970. */
  | {
    readonly kind: "round";
    readonly begun: number;
    readonly ended: number;
    readonly mass: number;
    readonly counts: readonly (number | null)[];
  }
  /** A result that is not what it must be. */
  | { readonly kind: "wrong"; readonly what: string }
  /** It was out, and why; it comes back. */
  | { readonly kind: "out"; readonly why: string };

/** Pause before it comes back, in milliseconds. */
const BACK_MS = 50;
/** How long one attempt to come back may take. */
const JOIN_MS = 4_000;
/** How long a round may take: far more than the deadline that the servers have for it. */
const ROUND_MS = 60_000;

function say(line: RankLine): void {
  Deno.stdout.writeSync(new TextEncoder().encode(`${JSON.stringify(line)}\n`));
}

async function main(args: readonly string[]): Promise<void> {
  const [rank, relay, first, values] = [
    Number(args[0]),
    args[1]!,
    Number(args[2]),
    Number(args[3]),
  ];
  let stopping = false;
  void Deno.stdin.readable.pipeTo(new WritableStream()).then(() => stopping = true);
  const data = new Float32Array(values);
  let count = first;
  while (!stopping) {
    let client: RankClient | undefined;
    try {
      client = await RankClient.connect({
        relay,
        rank,
        worldSize: WORLD,
        salt: Deno.env.get("TIERFOLD_SALT")!,
        joinTimeoutMs: JOIN_MS,
        roundTimeoutMs: ROUND_MS,
      });
      say({ kind: "joined" });
      while (!stopping) {
        count++;
        fill(data, rank, count);
        const begun = Date.now();
        const { mass } = await client.allReduce([data], { kind: "model", mass: massOf(rank) });
        const counts = readResult(data, mass, { rank, count });
        if (typeof counts === "string") say({ kind: "wrong", what: counts });
        else {
          const known = counts.map((value) => value ?? null);
          say({ kind: "round", begun, ended: Date.now(), mass, counts: known });
        }
      }
    } catch (error) {
      // The fault's doing; the next attempt tells whether it is over.
      say({ kind: "out", why: error instanceof Error ? error.message : String(error) });
      if (!stopping) await new Promise((resolve) => setTimeout(resolve, BACK_MS));
    } finally {
      await client?.close();
    }
  }
}

if (import.meta.main) {
  await main(Deno.args);
  Deno.exit(0);
}
