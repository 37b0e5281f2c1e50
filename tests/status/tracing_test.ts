// Spans of a round, from a cluster of real processes to a collector that speaks OTLP over HTTP.
import { assert, assertEquals } from "@std/assert";
import { Cluster } from "../cluster/cluster.ts";
import { soon } from "../cluster/waiting.ts";

interface OtlpSpan {
  traceId: string;
  spanId: string;
  parentSpanId: string;
  name: string;
  startTimeUnixNano: string;
  endTimeUnixNano: string;
  attributes: { key: string; value: { intValue?: string | number; doubleValue?: number } }[];
  status?: { code?: number; message?: string };
}

/** Takes what OTLP exporters send. */
class Collector implements AsyncDisposable {
  readonly spans: OtlpSpan[] = [];
  readonly #waiting = new Set<() => void>();
  readonly #server: Deno.HttpServer<Deno.NetAddr>;

  constructor() {
    const options = { hostname: "127.0.0.1", port: 0, onListen: () => {} };
    this.#server = Deno.serve(options, async (request) => {
      const body = await request.json();
      for (const { scopeSpans } of body.resourceSpans ?? []) {
        for (const { spans } of scopeSpans) this.spans.push(...spans);
      }
      for (const look of this.#waiting) look();
      return Response.json({});
    });
  }

  get environment(): Record<string, string> {
    return {
      OTEL_DENO: "true",
      OTEL_DENO_CONSOLE: "ignore",
      OTEL_EXPORTER_OTLP_PROTOCOL: "http/json",
      OTEL_EXPORTER_OTLP_ENDPOINT: `http://127.0.0.1:${this.#server.addr.port}`,
      OTEL_BSP_SCHEDULE_DELAY: "100",
    };
  }

  /** Waits for so many spans of a name. */
  async named(name: string, count: number): Promise<OtlpSpan[]> {
    const found = Promise.withResolvers<OtlpSpan[]>();
    const look = () => {
      const spans = this.spans.filter((span) => span.name === name);
      if (spans.length >= count) found.resolve(spans);
    };
    this.#waiting.add(look);
    look();
    const spans = await soon(`${count} spans ${name}`, found.promise, 30_000);
    assertEquals(spans.length, count, name);
    return spans;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#server.shutdown();
  }
}

/** Sets variables for the processes that are started meanwhile. */
function environment(variables: Record<string, string>): Disposable {
  for (const [name, value] of Object.entries(variables)) Deno.env.set(name, value);
  return {
    [Symbol.dispose]() {
      for (const name of Object.keys(variables)) Deno.env.delete(name);
    },
  };
}

const attribute = (span: OtlpSpan, key: string) => {
  const value = span.attributes.find((attribute) => attribute.key === key)?.value;
  return Number(value?.intValue ?? value?.doubleValue);
};

Deno.test("ranks, relays and controller export each round into one trace", async () => {
  await using collector = new Collector();
  using _variables = environment(collector.environment);
  await using cluster = await Cluster.start([[0, 1], [2]]);
  const ranks = await Promise.all([cluster.ranks([0, 1]), cluster.ranks([2])]);
  for (let i = 0; i < 2; i++) {
    await Promise.all([ranks[0]!.begin([[1], [2]]), ranks[1]!.begin([[3]])]);
    for (const rank of ranks) assertEquals((await rank.round()).masses[0], 3);
  }
  const roots = await collector.named("tierfold.controller.round", 2);
  const relays = await collector.named("tierfold.relay.round", 4);
  const rounds = await collector.named("tierfold.rank.round", 6);
  const traces = new Map(roots.map((span) => [attribute(span, "tierfold.round"), span.traceId]));
  assertEquals(new Set(traces.values()).size, 2);
  for (const span of [...relays, ...rounds]) {
    assertEquals(span.traceId, traces.get(attribute(span, "tierfold.round")));
    assertEquals(span.status?.message ?? "", "");
  }
  const parents = new Set([...roots, ...relays, ...rounds].map(({ parentSpanId }) => parentSpanId));
  assertEquals(parents.size, 2, "all spans of a round lie below one");
  assertEquals(rounds.map((span) => attribute(span, "tierfold.rank")).sort(), [0, 0, 1, 1, 2, 2]);
  assertEquals(roots.map((span) => attribute(span, "tierfold.mass")), [3, 3]);

  const frames = await collector.named("tierfold.controller.frame", 4);
  const arrivals = await collector.named("tierfold.relay.arrival", 6);
  const uplinks = await collector.named("tierfold.relay.uplink", 4);
  const owners = new Map([...roots, ...relays].map((span) => [span.spanId, span]));
  for (const part of [...frames, ...arrivals, ...uplinks]) {
    const owner = owners.get(part.parentSpanId)!;
    assertEquals(part.traceId, owner.traceId);
    assert(BigInt(part.startTimeUnixNano) <= BigInt(part.endTimeUnixNano), part.name);
    // The clock has microseconds, and the export rounds.
    assert(BigInt(part.endTimeUnixNano) <= BigInt(owner.endTimeUnixNano) + 10_000n, part.name);
  }
  await cluster.finish(ranks);
});

Deno.test("without an exporter a round makes no spans", async () => {
  await using collector = new Collector();
  using _variables = environment({ ...collector.environment, OTEL_DENO: "false" });
  await using cluster = await Cluster.start([[0]]);
  const rank = await cluster.ranks([0]);
  await rank.begin([[1]]);
  await rank.round();
  await cluster.finish([rank]);
  assertEquals(collector.spans, []);
});
