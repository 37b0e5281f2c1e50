import { assert, assertEquals, assertMatch, assertNotEquals } from "@std/assert";
import { TextLineStream } from "@std/streams";
import { alive, CAN_LIST, commandOf, descendants } from "./descendants.ts";

const ROOT = new URL("../../", import.meta.url);

/** How long the demo may take to end once it was told to, in milliseconds. */
const END_MS = 5_000;

/** A demo under way: its lines as they come, and the processes it had when it said them. */
class Demo implements AsyncDisposable {
  readonly lines: string[] = [];
  errors = "";
  readonly #process: Deno.ChildProcess;
  readonly #reader: ReadableStreamDefaultReader<string>;
  readonly #errorsRead: Promise<void>;

  constructor(command: readonly string[], args: readonly string[]) {
    this.#process = new Deno.Command(Deno.execPath(), {
      args: [...command, ...args],
      cwd: ROOT,
      env: { NO_COLOR: "1" },
      stdin: "null",
      stdout: "piped",
      stderr: "piped",
    }).spawn();
    const toLines: TransformStream<string, string> = new TextLineStream();
    this.#reader = this.#process.stdout.pipeThrough(new TextDecoderStream())
      .pipeThrough(toLines).getReader();
    this.#errorsRead = this.#readErrors();
  }

  get pid(): number {
    return this.#process.pid;
  }

  /** Its lines without indents and columns. */
  get words(): string[] {
    return this.lines.map((line) => line.trim().replaceAll(/ +/g, " "));
  }

  /** Reads on until a line matches. */
  async until(pattern: RegExp): Promise<void> {
    for (;;) {
      const { value, done } = await this.#reader.read();
      if (done) break;
      this.lines.push(value);
      if (pattern.test(value)) return;
    }
    await this.#errorsRead;
    throw new Error(`the demo never said ${pattern}; it said:\n${this.text}\n${this.errors}`);
  }

  /** Reads to the end; returns the exit code. */
  async end(): Promise<number> {
    for (;;) {
      const { value, done } = await this.#reader.read();
      if (done) break;
      this.lines.push(value);
    }
    await this.#errorsRead;
    return (await this.#process.status).code;
  }

  /** Sends a signal, then reads to the end; fails when that takes longer than {@link END_MS}. */
  async endBy(signal: Deno.Signal, pid = this.pid): Promise<number> {
    Deno.kill(pid, signal);
    const timer = setTimeout(() => this.#process.kill("SIGKILL"), END_MS);
    const code = await this.end();
    clearTimeout(timer);
    assertNotEquals(code, 137, `the demo was still there ${END_MS} ms after ${signal}`);
    return code;
  }

  get text(): string {
    return this.lines.join("\n");
  }

  async [Symbol.asyncDispose](): Promise<void> {
    try {
      this.#process.kill("SIGTERM");
    } catch {
      // It has ended.
    }
    await this.end();
  }

  async #readErrors(): Promise<void> {
    for await (const text of this.#process.stderr.pipeThrough(new TextDecoderStream())) {
      this.errors += text;
    }
  }
}

/** The demo as `deno task demo` runs it, without the task around it. */
const DIRECT = ["run", "--no-prompt", "--allow-run", "examples/demo.ts"];

/** What it says of each round of three ranks. */
const ROUND = /^round \d\/\d loss \d+\.\d{3} \d+ ms, averaging \d+\.\d ms up 3 x 102 kB$/;

/** What it says in the end, of three ranks and two rounds. */
const RESULTS = [
  /^consensus of 3 ranks \d+\.\d\d %$/,
  /^rank 0 alone on its own shard \d+\.\d\d % 20 steps on 4,000 digits$/,
  /^rank 1 alone on its own shard \d+\.\d\d % 14 steps on 2,667 digits$/,
  /^rank 2 alone on its own shard \d+\.\d\d % 6 steps on 1,333 digits$/,
  /^one process on all digits \d+\.\d\d % 40 steps on 8,000 digits$/,
  /^(yes|NO) the consensus beats every rank alone: /,
  /^(yes|NO) it stays within 3 points of one process on all digits: /,
  /^yes all ranks ended with the same bits: SHA-256 [0-9a-f]{16}\.\.\.$/,
];

Deno.test("the demo, tiny, from start to end", async () => {
  await using demo = new Demo(["task", "--quiet", "demo"], [
    ...["--ranks", "3", "--hosts", "2", "--rounds", "2"],
  ]);
  await demo.until(/^round 1\/2/);
  const children = CAN_LIST ? descendants(demo.pid) : [];
  const code = await demo.end();
  assertEquals(code, 0, `${demo.text}\n${demo.errors}`);
  if (CAN_LIST) {
    assert(children.length >= 6, `1 controller, 2 relays and 3 ranks: saw ${children.length}`);
    assertEquals(alive(children), []);
  }
  const said = (pattern: RegExp) => demo.words.filter((line) => pattern.test(line)).length;
  assertEquals(said(/^host-\d relay at 127\.0\.0\.1:\d+, rank \d/), 2);
  assertEquals(said(/^rank \d [\d,]+ digits, mostly \d/), 3);
  assertEquals(said(ROUND), 2, demo.text);
  for (const result of RESULTS) assertEquals(said(result), 1, `${result} in:\n${demo.text}`);
  assert(!demo.text.includes("\x1b"), "no escapes where output is no terminal");
});

Deno.test("Ctrl-C in the middle of training ends everything", async () => {
  await using demo = new Demo(DIRECT, ["--ranks", "2", "--hosts", "1", "--rounds", "1000"]);
  await demo.until(/^round +2\/1000/);
  const children = CAN_LIST ? descendants(demo.pid) : [];
  assertEquals(await demo.endBy("SIGINT"), 130);
  assertMatch(demo.errors, /demo: all processes were ended: told to by SIGINT/);
  assertEquals(alive(children), []);
});

Deno.test({
  name: CAN_LIST
    ? "a rank that is killed is named, and ends everything"
    : "a rank that is killed is named, and ends everything (skipped: finds ranks in Linux's /proc)",
  ignore: !CAN_LIST,
  async fn() {
    await using demo = new Demo(DIRECT, ["--ranks", "2", "--hosts", "2", "--rounds", "1000"]);
    await demo.until(/^round +2\/1000/);
    const children = descendants(demo.pid);
    const victim = children.find((pid) =>
      /digits\/rank\.ts 127\.0\.0\.1:\d+ 1 2 /.test(commandOf(pid))
    );
    assert(victim !== undefined, `no rank 1 among:\n${children.map(commandOf).join("\n")}`);
    assertEquals(await demo.endBy("SIGKILL", victim), 1);
    assertMatch(demo.errors, /demo: all processes were ended: rank 1 ended by SIGKILL/);
    assertEquals(alive(children), []);
  },
});

Deno.test("options that make no sense are refused before anything starts", async () => {
  for (
    const [args, words] of [
      [["--hosts", "5"], /--hosts 5, but --ranks 4: every host needs a rank/],
      [["--ranks", "0"], /Expected a whole number from 1 to 32/],
      [["--rounds", "many"], /Expected a whole number from 1 to 10000/],
      [["--rank", "3"], /unknown option '--rank'/],
      [["--torch", "5"], /--torch 5, but --ranks 4: there are not so many/],
      [["--torch", "1", "--wire", "bf16"], /ranks in Python speak f32/],
    ] as const
  ) {
    await using demo = new Demo(DIRECT, args);
    assertEquals(await demo.end(), 1);
    assertMatch(demo.errors, words);
    assertEquals(demo.lines, []);
  }
});
