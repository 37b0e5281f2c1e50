// A session whose ranks and relays a launcher starts, and what must have come of it.
import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { Child } from "../../bench/child.ts";
import { numpy, PYTHON_ENV } from "../python/interpreters.ts";

/** How long a launcher and the ranks under it may take on a busy machine. */
const PATIENCE_MS = 120_000;

const SALT = "9d1c4be07a52f8360ee5b3476d91c82f";
const START_MS = 120_000;

/** Where task.sh lies, which a launcher is to start. */
export const TASK = new URL("./task.sh", import.meta.url).pathname;

interface Said {
  readonly language: string;
  readonly rank: number;
  readonly worldSize: number;
  readonly localRank: number;
  readonly source: string;
  readonly counts: number[];
  readonly mass: number;
  readonly values: number[];
}

/** A port that was free a moment ago. */
export function freePort(): number {
  using listener = Deno.listen({ hostname: "127.0.0.1", port: 0 });
  return listener.addr.port;
}

export interface LaunchPlan {
  /** The launcher's command line, which starts {@link TASK} once per rank. */
  readonly command: readonly string[];
  readonly worldSize: number;
  /** The number of each rank on its host, in rank order. */
  readonly localRanks: readonly number[];
  /** The launcher's name in what a rank says of its source. */
  readonly launcher: string;
  readonly env?: Readonly<Record<string, string>>;
}

/** Runs a session under a launcher, half of its ranks in Python where there is one; checks everything. */
export async function runLaunched(plan: LaunchPlan): Promise<void> {
  const { worldSize, localRanks } = plan;
  const controller = new Child({
    name: "the controller",
    command: [
      ...[Deno.execPath(), "run", "--quiet", "--no-prompt", "--allow-net=127.0.0.1"],
      ...["--allow-env=TIERFOLD_*", new URL("../../controller.ts", import.meta.url).pathname],
      ...["--world-size", `${worldSize}`],
    ],
    env: { TIERFOLD_SALT: SALT, NO_COLOR: "1" },
  });
  const hosts = localRanks.filter((local) => local === 0).length;
  let launcher: Child | undefined;
  try {
    const address = await controller.expect("listening ", START_MS);
    launcher = new Child({
      name: plan.launcher,
      command: plan.command,
      env: {
        ...PYTHON_ENV,
        ...plan.env,
        TIERFOLD_SALT: SALT,
        NO_COLOR: "1",
        DENO: Deno.execPath(),
        PYTHON: numpy?.path ?? "",
        CONTROLLER: address,
        HOST_PORTS: Array.from({ length: hosts }, freePort).join(" "),
      },
    });
    const said: Said[] = [];
    while (said.length < localRanks.length) {
      // A launcher may put what two ranks say at once on one line.
      const line = `{${await launcher.expect("{", PATIENCE_MS)}`;
      for (const [object] of line.matchAll(/\{[^{}]*\}/g)) said.push(JSON.parse(object));
    }
    check(said.sort((a, b) => a.rank - b.rank), plan);
    assertEquals(await launcher.finish(PATIENCE_MS), 0, launcher.stderr);
    assertEquals(await controller.finish(PATIENCE_MS), 0, controller.stderr);
    for (const text of ["from the launcher: --ranks 0", `(${plan.launcher})`]) {
      assertStringIncludes(launcher.stderr, text);
    }
  } finally {
    for (const child of [launcher, controller]) child?.kill("SIGKILL");
    await Promise.all([launcher, controller].map((child) => child?.finish().catch(() => {})));
  }
}

function check(said: readonly Said[], { worldSize, localRanks, launcher }: LaunchPlan): void {
  assertEquals(said.map(({ rank }) => rank), localRanks.map((_, rank) => rank));
  assertEquals(said.map(({ localRank }) => localRank), localRanks);
  const masses = localRanks.map((_, rank) => rank + 0.5);
  const mass = masses.reduce((sum, each) => sum + each);
  for (const [rank, each] of said.entries()) {
    assertEquals(each.worldSize, worldSize);
    assertStringIncludes(each.source, `(${launcher})`);
    assertEquals(each.counts, localRanks.map((_, rank) => rank + 1));
    assertEquals(each.mass, mass);
    assertEquals(each.values, said[0]!.values);
    const python = numpy !== undefined && localRanks[rank]! % 2 === 1;
    assertEquals(each.language, python ? "Python" : "TypeScript");
  }
  const mean = masses.reduce((sum, each, rank) => sum + each * rank / 3, 0) / mass;
  assert(Math.abs(said[0]!.values[0]! - mean) < 1e-6, `${said[0]!.values[0]}, expected ${mean}`);
}
