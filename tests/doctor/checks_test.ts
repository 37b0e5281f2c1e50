// Each of the doctor's checks, on things that are well and on things that are not.
import { assert, assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import { judgeSkew } from "../../doctor/clock.ts";
import { type Finding, healthy, renderFindings } from "../../doctor/finding.ts";
import { checkOpenFiles, checkPort, checkVersions } from "../../doctor/host.ts";
import { checkKernel } from "../../doctor/kernel.ts";
import { checkSalt } from "../../doctor/salt.ts";
import { checkTls } from "../../doctor/tls.ts";
import { UsageError } from "../../cli/spec.ts";
import { tlsTest } from "../transport/certificates.ts";

Deno.test("doctor: a salt with a pattern is a problem, a drawn one is not", () => {
  const check = (salt: string) => checkSalt({ env: () => salt }).findings[0]!;
  const weak = check("deadbeef".repeat(4));
  assertEquals(weak.state, "problem");
  assertStringIncludes(weak.found, "could be guessed");
  assertEquals(check(crypto.getRandomValues(new Uint8Array(16)).toHex()).state, "ok");
});

Deno.test({
  name: "doctor: who else may read the salt file",
  ignore: Deno.build.os === "windows",
  fn: async () => {
    const path = await Deno.makeTempFile();
    try {
      await Deno.writeTextFile(path, "8f3ab7e6c1a04d52967e0b1f2c3d4e5a\n");
      const at = async (mode: number) => {
        await Deno.chmod(path, mode);
        const { findings, salt } = checkSalt({ env: () => undefined, saltFile: path });
        assertEquals(salt?.length, 16);
        assert(!JSON.stringify(findings).includes("8f3ab7"), "the salt is printed");
        return findings.at(-1)!;
      };
      assertEquals((await at(0o600)).state, "ok");
      assertEquals((await at(0o400)).state, "ok");
      const readable = await at(0o644);
      assertEquals(readable.state, "problem");
      assertStringIncludes(readable.found, "has mode 644: every user of this host can read it");
      assertEquals(readable.advice, `chmod 600 ${path}`);
      assertStringIncludes((await at(0o640)).found, "its group can read it");
      assertStringIncludes((await at(0o620)).found, "its group can change it");
    } finally {
      await Deno.remove(path);
    }
  },
});

Deno.test("doctor: no salt is a problem, and says how to make one", () => {
  const { findings, salt } = checkSalt({ env: () => undefined });
  assertEquals([salt, findings[0]?.state], [undefined, "problem"]);
  assertStringIncludes(findings[0]?.advice ?? "", "openssl rand -hex 16");
});

tlsTest("doctor: certificates, and how long they are good for", (files) => {
  const identity = files.identity("relay");
  const [soon] = checkTls(() => identity).finding;
  assertEquals(soon?.state, "warning");
  assertMatch(soon?.found ?? "", /for 1 more days$/);
  const [earlier] = checkTls(() => identity, Date.now() - 30 * 86_400_000).finding;
  assertEquals(earlier?.state, "ok");
  const wrong = checkTls(() => {
    throw new UsageError(["--tls-key relay.key: of another certificate"]);
  });
  assertEquals([wrong.identity, wrong.finding[0]?.state], [undefined, "problem"]);
  assertEquals(checkTls(() => undefined).finding, []);
  return Promise.resolve();
});

Deno.test("doctor: two clocks", () => {
  const asked = Date.parse("2026-01-02T03:04:05.600Z");
  const answered = asked + 300;
  // Date is cut to seconds: 05 for what was sent at 05.7.
  const state = (offset: number) => judgeSkew("root:80", asked - 600 + offset, asked, answered);
  assertEquals(state(0).state, "ok");
  assertEquals(state(1000).state, "ok");
  assertEquals(state(7000).state, "warning");
  assertStringIncludes(state(7000).found, "at least 6.1 s behind root:80");
  assertStringIncludes(state(-7000).found, "at least 6.6 s ahead of root:80");
  assertEquals(state(61_000).state, "problem");
  assertEquals(state(-62_000).state, "problem");
});

Deno.test("doctor: a port that is free, taken, or not this host's", () => {
  const listener = Deno.listen({ hostname: "127.0.0.1", port: 0 });
  const { port } = listener.addr;
  const taken = checkPort("port", { hostname: "127.0.0.1", port });
  listener.close();
  assertEquals(taken.state, "problem");
  assertStringIncludes(taken.found, `127.0.0.1:${port}`);
  assertStringIncludes(taken.advice ?? "", `sport = :${port}`);
  assertEquals(checkPort("port", { hostname: "127.0.0.1", port }).state, "ok");
  const elsewhere = checkPort("port", { hostname: "192.0.2.1", port: 0 });
  assertEquals(elsewhere.state, "problem");
  assertStringIncludes(elsewhere.advice ?? "", "an address of this host");
});

Deno.test("doctor: open files for a world, and for one that is too large", async () => {
  const few = await checkOpenFiles(8);
  const many = await checkOpenFiles(10_000_000);
  assertEquals(few[0]?.state, "ok", few[0]?.found);
  // Where there is no limit, nothing is too large.
  if (!/Windows|unlimited/.test(many[0]!.found)) {
    assertEquals(many[0]?.state, "problem", many[0]?.found);
    assertStringIncludes(many[0]?.advice ?? "", "LimitNOFILE=10000064");
  }
});

Deno.test("doctor: versions", () => {
  assertEquals(checkVersions()[0]?.state, "ok");
  assertEquals(checkVersions("3.0.0")[0]?.state, "ok");
  for (const old of ["2.9.5", "2.8.9", "1.99.99"]) {
    assertEquals(checkVersions(old)[0]?.state, "warning", old);
  }
});

Deno.test("doctor: the kernel that every host has", async () => {
  const findings = await checkKernel("simd");
  assertEquals(findings.map(({ check, state }) => [check, state]), [
    ["kernel", "ok"],
    ["adapter", "ok"],
  ]);
});

Deno.test("doctor: the page names the state, and what to do below it", () => {
  const findings: Finding[] = [
    { check: "salt", state: "ok", found: "well" },
    { check: "open files", state: "problem", found: "too few", advice: "raise it" },
    { check: "clock", state: "warning", found: "slow", advice: "run ntp" },
  ];
  assertEquals(
    renderFindings(findings),
    `ok       salt        well
problem  open files  too few
                     -> raise it
warning  clock       slow
                     -> run ntp

1 problem, 1 warning
`,
  );
  assertEquals([healthy(findings), healthy([findings[2]!])], [false, true]);
});
