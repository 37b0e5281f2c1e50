// The doctor as a program, next to a running cluster, which must not notice.
import { assert, assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import type { Finding } from "../../doctor/finding.ts";
import { Cluster, Member } from "../cluster/cluster.ts";
import { tlsTest } from "../transport/certificates.ts";

/** A salt without a pattern. */
const SALT = "8f3ab7e6c1a04d52967e0b1f2c3d4e5a";

async function doctor(args: readonly string[], salt: string) {
  const { code, stdout, stderr } = await new Deno.Command(Deno.execPath(), {
    args: ["task", "--quiet", "doctor", ...args],
    cwd: new URL("../../", import.meta.url).pathname,
    env: { TIERFOLD_SALT: salt },
    stdin: "null",
  }).output();
  return { code, out: new TextDecoder().decode(stdout), err: new TextDecoder().decode(stderr) };
}

async function findings(args: readonly string[], salt = SALT) {
  const { code, out, err } = await doctor(["--json", ...args], salt);
  assert(!out.includes(salt), "the salt is printed");
  const report = JSON.parse(out) as { healthy: boolean; findings: Finding[] };
  assertEquals(report.healthy, code === 0, err);
  return {
    code,
    of: (check: string) => report.findings.find((finding) => finding.check === check)!,
  };
}

Deno.test("doctor: greets a running controller and relay, whose session goes on", async () => {
  const options = { salt: SALT, args: ["--http", "127.0.0.1:0"] };
  await using cluster = await Cluster.start([[0, 1]], options, { 0: { salt: SALT } });
  await cluster.controller.logged("serving HTTP on ");
  const http = /serving HTTP on (\S+)/.exec(cluster.controller.child.stderr)![1]!;
  const ranks = await cluster.ranks([0, 1], { salt: SALT });
  await ranks.begin([[1], [3]]);
  await ranks.round();
  const places = [
    ...["--controller", cluster.controller.address, "--controller-http", http],
    ...["--relay", cluster.relays[0]!.address],
  ];
  const well = await findings([...places, "--world-size", "2"]);
  assertEquals(well.code, 0);
  assertEquals(well.of("clock").state, "ok");
  for (const who of ["controller", "relay"]) {
    assertEquals(well.of(who).state, "ok", well.of(who).found);
    assertMatch(well.of(who).found, /knows our salt; its session has 2 ranks$/);
  }

  const other = await findings([...places, "--world-size", "3"]);
  assertEquals(other.code, 1);
  for (const who of ["controller", "relay"]) {
    assertStringIncludes(other.of(who).found, "a session of 2 ranks, --world-size is 3");
  }

  const stranger = await findings(places, "9f3ab7e6c1a04d52967e0b1f2c3d4e5a");
  assertEquals(stranger.code, 1);
  for (const who of ["controller", "relay"]) {
    assertStringIncludes(stranger.of(who).found, "the salts of the two processes differ");
    assertStringIncludes(stranger.of(who).advice ?? "", "copy one salt file to all hosts");
  }

  await ranks.begin([[2], [6]]);
  assertEquals(await ranks.round(), { masses: [2, 2], values: [[4], [4]] });
  await cluster.finish([ranks]);
});

Deno.test("doctor: nobody there, somebody else there, a config file, and a page for people", async () => {
  const stranger = Deno.serve(
    { hostname: "127.0.0.1", port: 0, onListen: () => {} },
    () => new Response("no"),
  );
  const config = await Deno.makeTempFile({ suffix: ".json" });
  try {
    const address = `127.0.0.1:${stranger.addr.port}`;
    await Deno.writeTextFile(
      config,
      JSON.stringify({ ranks: "0-3", worldSize: 8, controller: "127.0.0.1:1", listen: address }),
    );
    const args = ["--config", config, "--relay", address, "--timeout", "2s"];
    const report = await findings(args);
    assertEquals(report.code, 1);
    assertStringIncludes(
      report.of("controller").found,
      "connecting to the controller at 127.0.0.1:1",
    );
    assertStringIncludes(report.of("controller").advice ?? "", "nc -vz 127.0.0.1 1");
    assertStringIncludes(report.of("relay").advice ?? "", "another program");
    assertStringIncludes(report.of("port").found, `listening on ${address}`);

    const page = await doctor(args, SALT);
    assertEquals(page.code, 1);
    assertStringIncludes(page.out, "-> start it, check the address");
    assertStringIncludes(page.out, "3 problems");

    const wrong = await doctor(["--controller", "nowhere"], SALT);
    assertEquals(wrong.code, 2);
    assertStringIncludes(wrong.err, "tierfold-doctor: --controller: expected HOST:PORT");
  } finally {
    await Deno.remove(config);
    await stranger.shutdown();
  }
});

tlsTest(
  "doctor: greets a controller that speaks TLS, and says so where only one does",
  async (files) => {
    const flags = (name: string) => {
      const { cert, key, ca } = files.files(name);
      return ["--tls-cert", cert, "--tls-key", key, "--tls-ca", ca];
    };
    const permissions = [
      "--allow-net=127.0.0.1",
      "--allow-env=TIERFOLD_*",
      `--allow-read=${files.folder}`,
    ];
    const controller = new Member(
      "controller",
      "../../controller.ts",
      ["--listen", "127.0.0.1:0", "--world-size", "2", ...flags("controller")],
      SALT,
      permissions,
    );
    try {
      const { address } = await controller.listens();
      const greeted = ["--controller", address, "--timeout", "2s"];
      const well = await findings([...greeted, ...flags("relay")]);
      assertEquals(well.of("controller").state, "ok", well.of("controller").found);
      assertMatch(well.of("tls").found, /belong together/);
      const plain = await findings(greeted);
      assertEquals(plain.of("controller").state, "problem");
      assertStringIncludes(plain.of("controller").advice ?? "", "only one of both ends speaks TLS");
      const stranger = await findings([...greeted, ...flags("stranger")]);
      assertEquals(stranger.of("controller").state, "problem");
    } finally {
      controller.signal("SIGKILL");
      await controller.child.finish();
    }
  },
);
