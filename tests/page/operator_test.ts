// The operator's desk: who is let in, and what is done.
import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { OperatorDesk } from "../../controller/operator/desk.ts";
import { Cluster } from "../cluster/cluster.ts";
import { freePort } from "../delta/sockets.ts";

const TOKEN = "a-token-of-the-operator";

function desk(token: string | undefined = TOKEN) {
  const done: string[] = [];
  const actions = {
    end: () => void done.push("end"),
    declareDead: (rank: number) => {
      if (rank > 3) return false;
      done.push(`dead ${rank}`);
      return true;
    },
  };
  const desk = new OperatorDesk(token, actions);
  const ask = async (path: string, headers: Record<string, string> = {}, method = "POST") => {
    const request = new Request(`http://127.0.0.1:7080${path}`, { method, headers });
    const response = desk.handle(request)!;
    const text = await response.text();
    return { status: response.status, code: text === "" ? "" : JSON.parse(text).error?.code };
  };
  return { desk, done, ask };
}

const bearer = (token: string) => ({ authorization: `Bearer ${token}` });

Deno.test("operator: with the token the session ends and a rank is declared dead", async () => {
  const { ask, done } = desk();
  assertEquals((await ask("/operator/check", bearer(TOKEN))).status, 204);
  assertEquals(done, []);
  assertEquals((await ask("/operator/ranks/2/declare-dead", bearer(TOKEN))).status, 202);
  assertEquals((await ask("/operator/end", bearer(TOKEN))).status, 202);
  assertEquals(done, ["dead 2", "end"]);
  const { code } = await ask("/operator/ranks/7/declare-dead", bearer(TOKEN));
  assertEquals(code, "NoSuchRank");
  for (const path of ["/operator/ranks/-1/declare-dead", "/operator/ranks/1e9", "/operator/x"]) {
    assertEquals((await ask(path, bearer(TOKEN))).status, 404, path);
  }
});

Deno.test("operator: without the token nothing is done", async () => {
  const { ask, done } = desk();
  const wrong = [
    ...["", "a", TOKEN.slice(1), `${TOKEN}x`, TOKEN.toUpperCase(), `${TOKEN} ${TOKEN}`],
  ].map((token) => ({ ...bearer(token) }));
  for (
    const headers of [
      {},
      ...wrong,
      { authorization: `Basic ${btoa(`operator:${TOKEN}`)}` },
      { authorization: TOKEN },
      { cookie: `token=${TOKEN}` },
    ]
  ) {
    for (const path of ["/operator/end", "/operator/check", "/operator/ranks/0/declare-dead"]) {
      assertEquals((await ask(path, headers as Record<string, string>)).status, 401, path);
    }
  }
  assertEquals((await ask(`/operator/end?token=${TOKEN}`)).status, 401);
  assertEquals(done, []);
});

Deno.test("operator: pages of other origins are refused, token or not", async () => {
  const { ask, done } = desk();
  for (
    const headers of [
      { "sec-fetch-site": "cross-site" },
      { "sec-fetch-site": "same-site" },
      { origin: "https://elsewhere.test" },
      { origin: "http://127.0.0.1:7081" },
      { origin: "null" },
    ]
  ) {
    const all = { ...bearer(TOKEN), ...headers } as Record<string, string>;
    assertEquals((await ask("/operator/end", all)).code, "ForeignOrigin");
  }
  const own = {
    ...bearer(TOKEN),
    origin: "http://127.0.0.1:7080",
    "sec-fetch-site": "same-origin",
  };
  assertEquals((await ask("/operator/end", own)).status, 202);
  assertEquals(done, ["end"]);
});

Deno.test("operator: a link or an image does nothing, nor does a preflight allow more", async () => {
  const { ask, desk: own, done } = desk();
  for (const method of ["GET", "HEAD", "PUT", "DELETE", "OPTIONS"]) {
    assertEquals((await ask("/operator/end", bearer(TOKEN), method)).status, 405, method);
  }
  const preflight = own.handle(
    new Request("http://127.0.0.1/operator/end", { method: "OPTIONS" }),
  )!;
  assert(![...preflight.headers.keys()].some((name) => name.startsWith("access-control")));
  await preflight.body?.cancel();
  assertEquals(done, []);
});

Deno.test("operator: without a token in the controller nobody is let in", async () => {
  const done: string[] = [];
  const none = new OperatorDesk(undefined, {
    end: () => void done.push("end"),
    declareDead: () => true,
  });
  for (const token of ["", "undefined", TOKEN]) {
    const request = new Request("http://127.0.0.1/operator/end", {
      method: "POST",
      headers: bearer(token),
    });
    const response = none.handle(request)!;
    assertEquals(response.status, 403);
    assertStringIncludes(await response.text(), "TIERFOLD_OPERATOR_TOKEN");
  }
  assertEquals(done, []);
  const open = none.handle(new Request("http://127.0.0.1/operator"))!;
  assertEquals(await open.json(), { enabled: false });
  assertEquals(none.handle(new Request("http://127.0.0.1/operators")), undefined);
});

Deno.test("operator: a real session goes on without a hanging rank, and ends when told", async () => {
  const http = `127.0.0.1:${freePort()}`;
  const file = await Deno.makeTempFile();
  try {
    await Deno.writeTextFile(file, `${TOKEN}\n`);
    await using cluster = await Cluster.start([[0, 1], [2]], {
      args: ["--http", http, "--operator-token-file", file],
      permissions: ["--allow-net=127.0.0.1", "--allow-env=TIERFOLD_*", `--allow-read=${file}`],
    });
    const [first, hanging, other] = await Promise.all(
      [0, 1, 2].map((rank) => cluster.ranks([rank])),
    );
    const post = async (path: string, token: string) => {
      const response = await fetch(`http://${http}${path}`, {
        method: "POST",
        headers: bearer(token),
      });
      await response.body?.cancel();
      return response.status;
    };
    await first!.begin([[3]]);
    await other!.begin([[5]]);
    assertEquals(await post("/operator/ranks/1/declare-dead", `${TOKEN}-not`), 401);
    assertEquals(await post("/operator/ranks/1/declare-dead", TOKEN), 202);
    assertEquals(await first!.round(), { masses: [2], values: [[4]] });
    assertEquals(await other!.round(), { masses: [2], values: [[4]] });
    const state = await (await fetch(`http://${http}/state.json`)).json();
    assertEquals([state.ranks[1].phase, state.ranks[1].reason], [
      "lost",
      "the operator declared it dead",
    ]);
    await hanging!.begin([[9]]);
    await hanging!.failed("declared rank 1 dead");
    assertEquals(await post("/operator/end", TOKEN), 202);
    await cluster.controller.ends(0);
    await cluster.controller.logged("the operator ended the session");
    await cluster.relays[0]!.logged("the operator ended the session");
    assert(!cluster.controller.child.stderr.includes(TOKEN), "the token is in the log");
  } finally {
    await Deno.remove(file);
  }
});
