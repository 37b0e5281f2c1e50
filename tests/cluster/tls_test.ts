// TLS between real processes: a round goes through, and whoever does not belong ends with exit code 3.
import { assertEquals } from "@std/assert";
import { type CertificateFiles, tlsTest } from "../transport/certificates.ts";
import { Cluster, LEAST } from "./cluster.ts";

function options({ cert, key, ca }: CertificateFiles) {
  return {
    args: ["--tls-cert", cert, "--tls-key", key, "--tls-ca", ca],
    permissions: [...LEAST, `--allow-read=${cert},${key},${ca}`],
  };
}

tlsTest("tls, processes: a session over TLS; strangers are refused at once", async (files) => {
  const controller = options(files.files("controller"));
  const relay = options(files.files("relay"));
  await using cluster = await Cluster.start([[0, 1], [2]], controller, { 0: relay, 1: relay });
  const ranks = await Promise.all([[0, 1], [2]].map((host) => cluster.ranks(host)));
  await ranks[0]!.begin([[1], [2]]);
  await ranks[1]!.begin([[6]]);
  assertEquals(await ranks[0]!.round(), { masses: [3, 3], values: [[3], [3]] });
  assertEquals(await ranks[1]!.round(), { masses: [3], values: [[3]] });

  // With a deadline this long, a relay that tried again would not end in time.
  const args = ["--host", "odd", "--ranks", "2", "--controller", cluster.controller.address];
  args.push("--connect-deadline", "10m");
  const odd = (name: string, tls: { args: string[]; permissions: string[] } | undefined) =>
    cluster.server(name, "../../relay.ts", args, tls);
  const strange = odd("a relay of another CA", options(files.files("stranger", "ca")));
  await strange.ends(2);
  await strange.logged("--tls-cert", "the certificate was not issued by the CA");
  const stranger = odd(
    "a relay that trusts another CA",
    options(files.files("stranger", "other-ca")),
  );
  await stranger.ends(3);
  await stranger.logged("with TLS", "its certificate was not issued by our CA");
  await cluster.controller.logged("TLS with 127.0.0.1", "the connection is closed");
  const plain = odd("a plain relay", undefined);
  await plain.ends(3);
  await plain.logged("the other end speaks TLS, this one does not");

  // The session has not noticed.
  await ranks[0]!.begin([[1], [2]]);
  await ranks[1]!.begin([[3]]);
  assertEquals(await ranks[1]!.round(), { masses: [3], values: [[2]] });
  assertEquals(await ranks[0]!.round(), { masses: [3, 3], values: [[2], [2]] });
  await cluster.finish(ranks);
});

tlsTest("tls, processes: a plain controller refuses TLS, and says why", async (files) => {
  await using cluster = await Cluster.start([[0]]);
  const args = ["--host", "b", "--ranks", "0", "--controller", cluster.controller.address];
  args.push("--connect-deadline", "10m");
  const relay = cluster.server("TLS", "../../relay.ts", args, options(files.files("relay")));
  await relay.ends(3);
  await relay.logged("connecting to the controller at", "it speaks no TLS that we do");
  await cluster.controller.logged("the other end speaks TLS, this one does not");
  const rank = await cluster.ranks([0]);
  await rank.begin([[1]]);
  assertEquals(await rank.round(), { masses: [1], values: [[1]] });
  await cluster.finish([rank]);
});
