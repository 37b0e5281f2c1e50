import { assert, assertEquals, assertRejects, assertStringIncludes } from "@std/assert";
import { TextLineStream } from "@std/streams";
import { startLogging } from "../../cli/log.ts";
import { CheckpointError } from "../../controller/state/checkpoint_error.ts";
import { type CheckpointContents } from "../../controller/state/checkpoint_file.ts";
import { Checkpoints } from "../../controller/state/checkpoints.ts";
import { loadCheckpoint } from "../../controller/state/load.ts";
import { Arena } from "../../kernels/arena.ts";
import { infoOf, SHAPES, tensorsOf, valuesOf } from "./pattern.ts";

class TempDir implements Disposable {
  readonly path = Deno.makeTempDirSync();

  [Symbol.dispose](): void {
    Deno.removeSync(this.path, { recursive: true });
  }

  names(): string[] {
    return [...Deno.readDirSync(this.path)].map(({ name }) => name).sort();
  }

  file(step: number): string {
    return `${this.path}/checkpoint-${String(step).padStart(12, "0")}.safetensors`;
  }
}

function fresh({ header }: CheckpointContents): Uint8Array[] {
  return header.tensors.map(({ nbytes }) => new Uint8Array(nbytes));
}

async function expectStep(path: string, step: number): Promise<void> {
  const loaded = await loadCheckpoint(path);
  assertEquals(loaded.step, step);
  assertEquals(loaded.tensors.map(({ shape }) => shape), SHAPES.map((shape) => [...shape]));
  loaded.tensors.forEach(({ name, data }, i) => {
    assertEquals(name, `tensor.${i}`);
    const wanted = valuesOf(step, i);
    assert(
      data.length === wanted.length && data.every((value, at) => value === wanted[at]),
      `${path}: tensor ${i} is not that of step ${step}`,
    );
  });
}

function flip(path: string, at: number): void {
  const bytes = Deno.readFileSync(path);
  bytes[at] = bytes[at]! ^ 1;
  Deno.writeFileSync(path, bytes);
}

Deno.test("checkpoints: what is written is read, from shared memory too, and the newest are kept", async () => {
  using dir = new TempDir();
  const checkpoints = await Checkpoints.open(`${dir.path}/a/b`, { keep: 2 });
  assertEquals(await checkpoints.readLast(fresh), undefined);
  const arena = new Arena();
  for (const step of [1, 2, 10]) {
    const tensors = tensorsOf(step).map((tensor) => {
      const bytes = arena.alloc(tensor.bytes.length + 3).subarray(3);
      bytes.set(tensor.bytes);
      return { ...tensor, bytes };
    });
    let written = 0;
    const stored = await checkpoints.write(tensors, infoOf(step), () => written++);
    assertEquals(written, 1);
    assertEquals(Deno.statSync(stored.path).size, stored.bytes);
    await expectStep(stored.path, step);
  }
  assertEquals(await checkpoints.steps(), [10, 2]);
  const places: Uint8Array[] = [];
  const last = await checkpoints.readLast(({ header }) => {
    places.push(...header.tensors.map(({ nbytes }) => arena.alloc(nbytes).fill(9)));
    return places;
  });
  assertEquals(last?.info, infoOf(10));
  assertEquals(places[0]?.slice(), new Uint8Array(valuesOf(10, 0).buffer));
  await expectStep(`${dir.path}/a/b`, 10);
});

Deno.test("checkpoints: damaged and half-written files are told of, and the one before is taken", async () => {
  using dir = new TempDir();
  const lines: string[] = [];
  using _logging = startLogging({ format: "human", level: "info" }, {
    color: false,
    write: (line) => lines.push(line),
  });
  const checkpoints = await Checkpoints.open(dir.path, { keep: 9 });
  for (let step = 1; step <= 6; step++) await checkpoints.write(tensorsOf(step), infoOf(step));
  const { size } = Deno.statSync(dir.file(1));
  flip(dir.file(6), size - 1);
  Deno.truncateSync(dir.file(5), size / 2);
  Deno.writeFileSync(dir.file(4), new Uint8Array(0));
  flip(dir.file(3), 400);
  await expectStep(dir.path, 2);
  const last = await checkpoints.readLast(fresh);
  assertEquals(last?.info.step, 2);
  for (const step of [3, 4, 5, 6]) {
    assert(lines.some((line) => line.includes(dir.file(step)) && line.includes("put aside")));
  }
  assertEquals(await checkpoints.steps(), [2, 1]);
  assertEquals(dir.names().filter((name) => name.endsWith(".damaged")).length, 4);
});

Deno.test("checkpoints: no bit of a file can change unseen", async () => {
  using dir = new TempDir();
  const checkpoints = await Checkpoints.open(dir.path, { keep: 1 });
  const small = tensorsOf(1).slice(2);
  await checkpoints.write(small, { ...infoOf(1), groups: [3] });
  const good = Deno.readFileSync(dir.file(1));
  for (let byte = 0; byte < good.length; byte++) {
    const bad = good.slice();
    bad[byte] = bad[byte]! ^ (1 << byte % 8);
    Deno.writeFileSync(dir.file(1), bad);
    const error = await assertRejects(() => loadCheckpoint(dir.file(1)), CheckpointError);
    assertEquals(error.code, "Damaged", `byte ${byte}: ${error.message}`);
  }
});

Deno.test("checkpoints: where all are damaged nothing is taken, and nothing put aside", async () => {
  using dir = new TempDir();
  const checkpoints = await Checkpoints.open(dir.path, { keep: 2 });
  for (const step of [1, 2]) {
    await checkpoints.write(tensorsOf(step), infoOf(step));
    flip(dir.file(step), 9_000);
  }
  for (const read of [() => checkpoints.readLast(fresh), () => loadCheckpoint(dir.path)]) {
    const error = await assertRejects(read, CheckpointError, "none of its 2 checkpoints is good");
    assertStringIncludes(error.message, dir.file(2));
  }
  assertEquals(await checkpoints.steps(), [2, 1]);
});

Deno.test("checkpoints: one of another version is not passed over", async () => {
  using dir = new TempDir();
  const checkpoints = await Checkpoints.open(dir.path, { keep: 2 });
  await checkpoints.write(tensorsOf(1), infoOf(1));
  await checkpoints.write(tensorsOf(2), { ...infoOf(2), version: 2 } as never);
  const error = await assertRejects(() => checkpoints.readLast(fresh), CheckpointError);
  assertEquals(error.code, "Foreign");
  await assertRejects(() => loadCheckpoint(`${dir.path}/none`), CheckpointError, "none");
});

Deno.test("checkpoints: a write that fails leaves what was there, and nothing else", async () => {
  using dir = new TempDir();
  const checkpoints = await Checkpoints.open(dir.path, { keep: 1 });
  await checkpoints.write(tensorsOf(1), infoOf(1));
  const before = dir.names();
  // A directory in the way of the name.
  Deno.mkdirSync(`${dir.file(2)}/x`, { recursive: true });
  await assertRejects(() => checkpoints.write(tensorsOf(2), infoOf(2)));
  Deno.removeSync(dir.file(2), { recursive: true });
  assertEquals(dir.names(), before);
  await expectStep(dir.path, 1);
  // Leftovers go when the directory is opened again; a stranger's files stay.
  Deno.writeTextFileSync(`${dir.file(3)}.part`, "half");
  Deno.writeTextFileSync(`${dir.path}/notes.part`, "mine");
  await Checkpoints.open(dir.path, { keep: 1 });
  assertEquals(dir.names(), [...before, "notes.part"].sort());
});

Deno.test("checkpoints: killed at any moment, none that was acknowledged is lost and none is half", async () => {
  using dir = new TempDir();
  const script = new URL("./checkpoint_writer.ts", import.meta.url);
  let acknowledged = 0;
  for (let kill = 0; kill < 10; kill++) {
    const child = new Deno.Command(Deno.execPath(), {
      args: ["run", "-A", "--quiet", script.href, dir.path],
      stdout: "piped",
    }).spawn();
    let timer: ReturnType<typeof setTimeout> | undefined;
    const toLines: TransformStream<string, string> = new TextLineStream();
    const lines = child.stdout.pipeThrough(new TextDecoderStream()).pipeThrough(toLines);
    for await (const line of lines) {
      acknowledged = Number(line);
      timer ??= setTimeout(() => child.kill("SIGKILL"), Math.random() * 40);
    }
    clearTimeout(timer);
    assertEquals((await child.status).signal, "SIGKILL");
    const files = dir.names().filter((name) => name.endsWith(".safetensors"));
    assert(files.length >= 1 && files.length <= 3, files.join());
    for (const name of files) {
      await expectStep(`${dir.path}/${name}`, Number(/\d+/.exec(name)![0]));
    }
    const { step } = await loadCheckpoint(dir.path);
    assert(step >= acknowledged, `step ${acknowledged} was acknowledged, ${step} is there`);
  }
  assert(acknowledged >= 10);
});
