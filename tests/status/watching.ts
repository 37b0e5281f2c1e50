// Watches a session over HTTP, as a browser or a scraper does.
import { assertEquals } from "@std/assert";
import parsePrometheus from "parse-prometheus-text-format";
import { applyChange, type StateChange, type StateDocument } from "../../observe/state.ts";
import { type Address, formatAddress } from "../../transport/tcp.ts";
import type { ControllerSettings } from "../../controller/server.ts";
import { soon } from "../cluster/waiting.ts";
import { SESSION_SALT as SALT } from "../vectors.ts";

/** A controller's HTTP port, known once it is served. */
export class Port {
  readonly #address = Promise.withResolvers<Address>();
  /** What the controller is told so that it serves HTTP. */
  readonly settings: Partial<ControllerSettings> = {
    sidelines: {
      http: { hostname: "127.0.0.1", port: 0 },
      onHttp: (address) => this.#address.resolve(address),
      salt: SALT,
      passesBytes: 1024 ** 2,
    },
  };

  async url(path: string): Promise<string> {
    return `http://${formatAddress(await soon("HTTP is served", this.#address.promise))}${path}`;
  }

  async get(path: string): Promise<Response> {
    return await fetch(await this.url(path));
  }

  async state(): Promise<StateDocument> {
    return await (await this.get("/state.json")).json();
  }

  /** Waits until the state is as wanted. */
  async shows(what: string, wanted: (state: StateDocument) => boolean): Promise<StateDocument> {
    return await soon(
      what,
      (async () => {
        for (;;) {
          const state = await this.state();
          if (wanted(state)) return state;
          await new Promise((resolve) => setTimeout(resolve, 20));
        }
      })(),
    );
  }

  /** A scrape, as Prometheus' own format says. */
  async scrape(path = "/metrics"): Promise<Scrape> {
    const response = await this.get(path);
    assertEquals(response.status, 200);
    return new Scrape(await response.text());
  }

  async stream(): Promise<Stream> {
    const response = await this.get("/events");
    assertEquals(response.headers.get("content-type"), "text/event-stream");
    return new Stream(response.body!);
  }
}

interface Family {
  name: string;
  help: string;
  type: string;
  metrics: {
    value?: string;
    labels?: Record<string, string>;
  }[];
}

/** What a scrape said. */
export class Scrape {
  readonly families: readonly Family[];
  /** The same without types: the parser merges the labels of histograms, but not those of numbers. */
  readonly #numbers: readonly Family[];

  constructor(text: string) {
    this.families = parsePrometheus(text);
    this.#numbers = parsePrometheus(text.replaceAll(/^# TYPE .*\n/gm, ""));
  }

  /** The value of a metric with exactly these labels; a histogram has NAME_count and NAME_sum. */
  value(name: string, labels: Record<string, string> = {}): number | undefined {
    const wanted = JSON.stringify(Object.entries(labels).sort());
    const families = this.#numbers.filter((family) => family.name === name);
    const text = families.flatMap(({ metrics }) => metrics).find((metric) =>
      JSON.stringify(Object.entries(metric.labels ?? {}).sort()) === wanted
    )?.value;
    return text === undefined ? undefined : Number(text);
  }
}

/** Reads server-sent events, and keeps the document that they make. */
export class Stream {
  readonly #reader: ReadableStreamDefaultReader<string>;
  #text = "";
  document: StateDocument | undefined;
  changes = 0;

  constructor(body: ReadableStream<Uint8Array<ArrayBuffer>>) {
    this.#reader = body.pipeThrough(new TextDecoderStream()).getReader();
  }

  /** Reads the next event; false at the end. */
  async next(): Promise<boolean> {
    for (;;) {
      const end = this.#text.indexOf("\n\n");
      if (end < 0) {
        const { done, value } = await this.#reader.read();
        if (done) return false;
        this.#text += value;
        continue;
      }
      const block = this.#text.slice(0, end);
      this.#text = this.#text.slice(end + 2);
      if (block.startsWith(":")) continue;
      const [, event, data] = /^event: (\w+)\ndata: (.*)$/.exec(block)!;
      if (event === "state") this.document = JSON.parse(data!) as StateDocument;
      else {
        this.document = applyChange(this.document!, JSON.parse(data!) as StateChange);
        this.changes++;
      }
      return true;
    }
  }

  /** Reads until the document is as wanted. */
  async shows(what: string, wanted: (state: StateDocument) => boolean): Promise<StateDocument> {
    await soon(
      what,
      (async () => {
        while (this.document === undefined || !wanted(this.document)) {
          if (!await this.next()) throw new Error(`the stream ended before: ${what}`);
        }
      })(),
    );
    return this.document!;
  }

  async cancel(): Promise<void> {
    await this.#reader.cancel();
  }
}
