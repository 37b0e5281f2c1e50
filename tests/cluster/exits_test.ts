// How the processes end: exit codes, signals, and errors that name what was wrong.
import { assert } from "@std/assert";
import { Cluster, type ServerOptions } from "./cluster.ts";
import { RawChannel } from "./raw.ts";

Deno.test("processes: signals end relay and controller within 5 s, and the ranks learn why", async () => {
  await using cluster = await Cluster.start([[0], [1]]);
  const [first, second] = cluster.relays;
  const waiting = await cluster.ranks([0]);
  const idle = await cluster.ranks([1]);
  await waiting.begin([[1]]);
  // Strangers that say nothing must not hold up the end.
  using one = await RawChannel.connect(first!.address);
  using other = await RawChannel.connect(cluster.controller.address);
  const started = Date.now();
  first!.signal("SIGINT");
  await waiting.failed(
    "refused rank 0 of 2 because: the relay of host host-0 ended: ended by SIGINT",
  );
  await first!.ends(130, 5_000);
  cluster.controller.signal("SIGTERM");
  await cluster.controller.ends(143, 5_000);
  await second!.logged("refused us because: the controller ended: ended by SIGTERM");
  await second!.ends(3, 5_000);
  await idle.begin([[1]]);
  await idle.failed("refused rank 1 of 2 because: the relay of host host-1 ended", "SIGTERM");
  assert(Date.now() - started < 15_000);
  assert([one, other].length === 2);
});

Deno.test("processes: a session whose ranks or relays were all lost ends with exit code 3", async () => {
  await using cluster = await Cluster.start([[0], [1]]);
  const [relay, lost] = cluster.relays;
  const rank = await cluster.ranks([0], { raw: true });
  const other = await cluster.ranks([1]);
  await rank.tell({ act: "send", values: [[1, 2, 3]], part: 0.5 });
  await rank.done();
  rank.signal("SIGKILL");
  await relay!.logged("all ranks of host host-0 were lost: 0");
  await relay!.ends(3);
  lost!.signal("SIGKILL");
  await other.begin([[1]]);
  await other.failed("127.0.0.1", "the result of round 0");
  await cluster.controller.logged("host host-1 is out in round 0 with ranks 1");
  await Promise.all([rank.ends(137), lost!.ends(137)]);
});

Deno.test("processes: a lone relay that is killed takes the session with it: exit code 3", async () => {
  await using cluster = await Cluster.start([[0]], { args: ["--return-deadline", "0s"] });
  await cluster.controller.logged("all 1 ranks have a relay");
  cluster.relays[0]!.signal("SIGKILL");
  await cluster.controller.logged("all ranks were lost: 0");
  await cluster.controller.ends(3);
});

Deno.test("processes: a session that ends before its first round ends with exit code 3", async () => {
  await using cluster = await Cluster.start([[0]]);
  const rank = await cluster.ranks([0]);
  await rank.tell({ act: "close" });
  await rank.ends(0);
  await cluster.controller.logged("the session ended before its first round");
  await cluster.controller.ends(3);
  await cluster.relays[0]!.ends(0);
});

Deno.test("processes: errors at the start name the address and what is wrong", async () => {
  await using cluster = await Cluster.start([[0, 1], [2]]);
  const { address } = cluster.controller;
  const relay = (name: string, controller: string, options: ServerOptions) => {
    const args = ["--host", "x", "--ranks", "2", "--controller", controller];
    return cluster.server(name, "../../relay.ts", args, options);
  };
  const taken = [
    relay("a relay on a taken port", address, { listen: address }),
    cluster.server("a controller on a taken port", "../../controller.ts", [], { listen: address }),
  ];
  for (const member of taken) {
    await member.logged(`the session failed here: listening on ${address}: `);
    await member.ends(1);
  }
  const nobody = relay("a relay without a controller", "127.0.0.1:1", {
    args: ["--connect-deadline", "100ms"],
  });
  await nobody.logged("connecting to the controller at 127.0.0.1:1: ", "in 100 ms failed");
  await nobody.ends(3);
  const unsigned = relay("a relay with another salt", address, {
    salt: "5ce0a1734bd2986f11f8e02c93b64d7a",
  });
  await unsigned.logged(
    `${address} refused us with a reason`,
    "the salts of the two processes differ",
  );
  await unsigned.ends(3);
  const twin = relay("a relay with a rank of another", address, {});
  await twin.logged('Hello of host "x": rank 2 is carried by host "host-1" already');
  await twin.ends(3);
  const outside = cluster.startRanks([0], { worldSize: 5 });
  await outside.failed("it says world size 5, this session has 3");
});
