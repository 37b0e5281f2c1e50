// The Kubernetes manifests: against the API's own schemas, and their options by the programs'.
import { assert, assertEquals, assertThrows } from "@std/assert";
import { DaemonSet } from "kubernetes-models/apps/v1/DaemonSet";
import { Deployment } from "kubernetes-models/apps/v1/Deployment";
import { ConfigMap } from "kubernetes-models/v1/ConfigMap";
import { Namespace } from "kubernetes-models/v1/Namespace";
import { Service } from "kubernetes-models/v1/Service";
import { parseAllDocuments } from "yaml";
import { controllerProgram } from "../../cli/controller_options.ts";
import { resolveOptions } from "../../cli/options.ts";
import { relayProgram } from "../../cli/relay_options.ts";
import { output } from "../../scripts/command.ts";
import { PROGRAMS } from "../../scripts/programs.ts";
import { testWith } from "../tools.ts";

const folder = new URL("../../deploy/kubernetes/", import.meta.url).pathname;
const KINDS = { DaemonSet, Deployment, ConfigMap, Namespace, Service };

// deno-lint-ignore no-explicit-any -- what a manifest is shows when it has been validated.
type Manifest = any;

async function documents(file: string): Promise<Manifest[]> {
  const parsed = parseAllDocuments(await Deno.readTextFile(folder + file), { strict: true });
  return [...parsed].map((document) => {
    assertEquals([...document.errors, ...document.warnings], [], file);
    return document.toJS();
  });
}

const manifests = (await Promise.all(
  ["namespace.yaml", "hosts.yaml", "controller.yaml", "relay.yaml"].map(documents),
)).flat();
const named = (kind: string, name: string) =>
  manifests.find((manifest) => manifest.kind === kind && manifest.metadata.name === name);
const controller = named("Deployment", "tierfold-controller");
const relay = named("DaemonSet", "tierfold-relay");

Deno.test("kubernetes: every manifest fits the API's schema", () => {
  assertEquals(manifests.length, 6);
  const check = (manifest: Manifest) =>
    new KINDS[manifest.kind as keyof typeof KINDS](manifest).validate();
  for (const manifest of manifests) check(manifest);
  assertThrows(() => check({ ...controller, spec: { ...controller.spec, replicas: "one" } }));
});

/** The words of a container's args: permissions, the script, options. */
function command(workload: Manifest) {
  const [container] = workload.spec.template.spec.containers;
  const at = container.args.findIndex((word: string) => word.endsWith(".js"));
  const expand = (word: string) => word.replaceAll("$(NODE_NAME)", "node-a");
  return {
    container,
    permissions: container.args.slice(0, at),
    script: container.args[at],
    args: container.args.slice(at + 1).map(expand),
  };
}

Deno.test("kubernetes: the programs take their options, with the permissions that they need", async () => {
  const root = command(controller);
  assertEquals(root.script, "/tierfold/tierfold-controller.js");
  assertEquals(root.permissions, PROGRAMS[0]!.permissions);
  const { values } = resolveOptions(controllerProgram.table, root.args, () => undefined);
  assertEquals(values.http, { hostname: "0.0.0.0", port: 7080 });

  const host = command(relay);
  assertEquals(host.script, "/tierfold/tierfold-relay.js");
  assertEquals(host.permissions, ["--allow-net", "--allow-read", "--allow-env=TIERFOLD_*"]);
  const temporary = await Deno.makeTempDir();
  try {
    const ranks: number[] = [];
    const files = Object.entries<string>(named("ConfigMap", "tierfold-hosts").data);
    for (const [file, content] of files) {
      await Deno.writeTextFile(`${temporary}/${file}`, content);
      const args = host.args.map((word: string) =>
        word.replace("/etc/tierfold/hosts/node-a.json", `${temporary}/${file}`)
      );
      const options = resolveOptions(relayProgram.table, args, () => undefined).values;
      assertEquals(options.worldSize, values.worldSize);
      assertEquals(options.controller, { hostname: "tierfold-controller", port: 7070 });
      ranks.push(...options.ranks);
    }
    assertEquals(ranks, Array.from({ length: values.worldSize }, (_, rank) => rank));
  } finally {
    await Deno.remove(temporary, { recursive: true });
  }
});

Deno.test("kubernetes: probes, ports and services belong together", () => {
  for (const workload of [controller, relay]) {
    const { args, container: { ports, readinessProbe, livenessProbe } } = command(workload);
    assertEquals(readinessProbe.httpGet, { path: "/readyz", port: "http" });
    assertEquals(livenessProbe.httpGet, { path: "/healthz", port: "http" });
    const known = ports.map(({ name }: Manifest) => name);
    const { containerPort } = ports.find(({ name }: Manifest) => name === "http");
    assert(args.includes(`--http=0.0.0.0:${containerPort}`));
    const service = named("Service", workload.metadata.name);
    for (const port of service.spec.ports) assert(known.includes(port.targetPort));
    assertEquals(service.spec.selector, workload.spec.template.metadata.labels);
    assertEquals(workload.spec.selector.matchLabels, workload.spec.template.metadata.labels);
  }
  // Relays find a controller that is not ready, and ranks a relay: each is ready when they have.
  for (const name of ["tierfold-controller", "tierfold-relay"]) {
    assertEquals(named("Service", name).spec.publishNotReadyAddresses, true);
  }
  // Ranks reach the relay of their own node.
  assertEquals(named("Service", "tierfold-relay").spec.internalTrafficPolicy, "Local");
});

Deno.test("kubernetes: salt and keys are secret files, and pods may little", () => {
  for (const workload of [controller, relay]) {
    const pod = workload.spec.template.spec;
    const { container, args } = command(workload);
    const mount = container.volumeMounts.find(({ name }: Manifest) => name === "salt");
    assert(mount.readOnly && args.includes(`--salt-file=${mount.mountPath}/salt`));
    for (const [flag, file] of [["cert", "tls.crt"], ["key", "tls.key"], ["ca", "ca.crt"]]) {
      assert(args.includes(`--tls-${flag}=/run/secrets/tls/${file}`));
    }
    const volume = pod.volumes.find(({ name }: Manifest) => name === "salt");
    assertEquals(volume.secret, { secretName: "tierfold-salt", defaultMode: 0o440 });
    assertEquals(pod.securityContext.runAsNonRoot, true);
    assertEquals([pod.automountServiceAccountToken, pod.enableServiceLinks], [false, false]);
    assertEquals(container.securityContext, {
      allowPrivilegeEscalation: false,
      readOnlyRootFilesystem: true,
      capabilities: { drop: ["ALL"] },
    });
    // Room for the 5 s in which the programs end.
    assert(pod.terminationGracePeriodSeconds > 5);
  }
});

testWith(["kubectl"], "kubernetes: kubectl builds all of it with its secrets", async () => {
  const copy = await Deno.makeTempDir();
  try {
    for await (const { name, isFile } of Deno.readDir(folder)) {
      if (isFile) await Deno.copyFile(folder + name, `${copy}/${name}`);
    }
    await Deno.mkdir(`${copy}/secrets`);
    const files = ["salt", "ca.crt", "controller.crt", "controller.key", "relay.crt", "relay.key"];
    for (const file of files) await Deno.writeTextFile(`${copy}/secrets/${file}`, `my ${file}`);
    const built = parseAllDocuments(await output(["kubectl", "kustomize", copy], copy));
    const all: Manifest[] = [...built].map((document) => document.toJS());
    const secrets = new Map(
      all.filter(({ kind }) => kind === "Secret").map((
        { metadata, data },
      ) => [metadata.name, data]),
    );
    for (const { kind, metadata } of all) {
      if (kind !== "Namespace") assertEquals(metadata.namespace, "tierfold");
    }
    for (const who of ["controller", "relay"]) {
      const { spec } = all.find(({ spec, kind }) =>
        kind !== "Service" && spec?.template?.metadata.labels.app === `tierfold-${who}`
      );
      const held = (name: string) =>
        secrets.get(
          spec.template.spec.volumes.find((volume: Manifest) => volume.name === name).secret
            .secretName,
        );
      assertEquals(held("salt"), { salt: btoa("my salt") });
      assertEquals(held("tls"), {
        "ca.crt": btoa("my ca.crt"),
        "tls.crt": btoa(`my ${who}.crt`),
        "tls.key": btoa(`my ${who}.key`),
      });
    }
  } finally {
    await Deno.remove(copy, { recursive: true });
  }
});

Deno.test("kubernetes: the image holds what `deno task bundle` makes, as the pods start it", async () => {
  const file = await Deno.readTextFile(`${folder}../Containerfile`);
  const copied = /^COPY (.*) \/tierfold\/$/m.exec(file)?.[1]?.split(" ");
  assertEquals(copied, PROGRAMS.map(({ name }) => `bin/${name}.js`));
  const entry = JSON.parse(/^ENTRYPOINT (.*)$/m.exec(file)![1]!);
  assertEquals(entry, ["deno", "run", "--no-prompt", "--no-config"]);
  const [, version] = /^FROM denoland\/deno:(.*)$/m.exec(file)!;
  const ci = await Deno.readTextFile(new URL("../../.ci/run", import.meta.url));
  assertEquals(version, /^DENO=deno@(.*)$/m.exec(ci)![1]);
});
