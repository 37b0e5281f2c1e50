// A rank in Python as a process of its own; see rank_main.py.
import { assert, assertEquals } from "@std/assert";
import { Child } from "../../bench/child.ts";
import { hex, SESSION_SALT as SALT } from "../vectors.ts";
import { type Interpreter, PYTHON_ENV } from "./interpreters.ts";

/** How long a Python with torch may take on a busy machine. */
const PATIENCE_MS = 120_000;

export interface PythonPlace {
  readonly relay: string;
  readonly rank: number;
  readonly worldSize: number;
  readonly salt?: string;
  readonly seal?: boolean;
}

export interface Averaged {
  readonly mass: number;
  /** f32 values as hex digits of their bytes, by name. */
  readonly tensors: Readonly<Record<string, string>>;
}

export class PythonRank implements AsyncDisposable {
  readonly #child: Child;

  /** Starts it; it finds its place in the environment when none is given. */
  constructor(
    python: Interpreter,
    place: PythonPlace | undefined,
    env: Readonly<Record<string, string>> = {},
  ) {
    const args = place === undefined ? [] : [
      ...[place.relay, `${place.rank}`, `${place.worldSize}`],
      ...place.seal ? ["seal"] : [],
    ];
    this.#child = new Child({
      name: `Python rank ${place?.rank ?? "of the environment"}`,
      command: [python.path, new URL("./rank_main.py", import.meta.url).pathname, ...args],
      env: { ...PYTHON_ENV, TIERFOLD_SALT: place?.salt ?? hex(SALT), ...env },
    });
  }

  tell(command: Readonly<Record<string, unknown>>): Promise<void> {
    return this.#child.send(JSON.stringify(command));
  }

  /** Waits until it has done what it was told. */
  async done<T = unknown>(): Promise<T> {
    const answer = await this.#child.expect("", PATIENCE_MS);
    assert(answer.startsWith("done "), `${answer}\n${this.#child.stderr}`);
    return JSON.parse(answer.slice("done ".length));
  }

  async connected(): Promise<this> {
    assertEquals(await this.done(), "connected");
    return this;
  }

  /** Waits until it could not do what it was told; gives what it says. */
  async failed(): Promise<string> {
    const answer = await this.#child.expect("", PATIENCE_MS);
    assert(answer.startsWith("failed "), answer);
    assertEquals(await this.#child.finish(PATIENCE_MS), 1);
    return answer.slice("failed ".length);
  }

  /** Starts a round over tensors of f32 values. */
  begin(
    tensors: Readonly<Record<string, Float32Array>>,
    options: { mass: number; kind?: string; torch?: boolean },
  ): Promise<void> {
    return this.tell({ act: "round", tensors: hexed(tensors), ...options });
  }

  async close(): Promise<void> {
    await this.tell({ act: "close" });
    assertEquals(await this.#child.finish(PATIENCE_MS), 0, this.#child.stderr);
  }

  kill(signal: Deno.Signal): void {
    this.#child.kill(signal);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#child.kill("SIGKILL");
    await this.#child.finish().catch(() => {});
  }
}

/** f32 values as hex digits of their bytes. */
export function hexed(tensors: Readonly<Record<string, Float32Array>>): Record<string, string> {
  return Object.fromEntries(
    Object.entries(tensors).map(([name, data]) => [
      name,
      new Uint8Array(data.buffer, data.byteOffset, data.byteLength).toHex(),
    ]),
  );
}
