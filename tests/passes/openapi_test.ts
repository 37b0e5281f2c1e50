// The OpenAPI document: valid, complete, and true to what the intake answers.
import { assert, assertEquals } from "@std/assert";
import { Validator } from "@seriousme/openapi-schema-validator";
import { signedHeaders } from "../../controller/passes/auth.ts";
import {
  acceptedSchema,
  errorSchema,
  passDetailSchema,
  passListSchema,
  passSchema,
} from "../../controller/passes/schemas.ts";
import { encodeGarw } from "../../wire/garw.ts";
import { SESSION_SALT as SALT } from "../vectors.ts";
import { withIntake } from "./harness.ts";

interface Operation {
  operationId: string;
  responses: Record<string, unknown>;
}

Deno.test("the OpenAPI document is served to anyone, and is valid", async () => {
  await withIntake({}, async ({ url }) => {
    for (let i = 0; i < 2; i++) {
      const response = await fetch(`${url}/openapi.json`);
      assertEquals(response.headers.get("content-type"), "application/json");
      const document = await response.json();
      const { valid, errors } = await new Validator().validate(structuredClone(document));
      assert(valid, JSON.stringify(errors));
      const operations = Object.entries(document.paths as Record<string, Record<string, Operation>>)
        .flatMap(([path, methods]) => Object.keys(methods).map((method) => `${method} ${path}`));
      assertEquals(operations.sort(), [
        "delete /v1/passes",
        "get /v1/blocks/{cid}",
        "get /v1/deltas",
        "get /v1/passes",
        "get /v1/passes/{key}",
        "post /v1/passes",
        "put /v1/passes/{key}/peers/{peer}/layers/{layer}",
      ]);
    }
  });
});

Deno.test("every documented operation exists, and answers what its schema says", async () => {
  await withIntake({}, async ({ url, client }) => {
    const document = await (await fetch(`${url}/openapi.json`)).json();
    const call = async (method: string, path: string, body?: Uint8Array<ArrayBuffer>) => {
      const headers = signedHeaders({ method, path, ...(body ? { body } : {}) }, SALT);
      const response = await fetch(url + path, { method, headers, ...(body ? { body } : {}) });
      return { status: response.status, value: await response.json() };
    };
    const start = { round: 1, initiator: "lead", expected: 2, layers: [{ name: "w" }] };
    const json = (value: unknown) => new TextEncoder().encode(JSON.stringify(value));
    const block = encodeGarw({ shape: [1], values: Float32Array.of(1), numSamples: 1 });
    passSchema.parse((await call("POST", "/v1/passes", json(start))).value);
    acceptedSchema.parse((await call("PUT", "/v1/passes/1-lead/peers/a/layers/w", block)).value);
    passDetailSchema.parse((await call("GET", "/v1/passes/1-lead")).value);
    passListSchema.parse((await call("GET", "/v1/passes")).value);
    const conflict = await call("POST", "/v1/passes", json(start));
    errorSchema.parse(conflict.value);
    assert("409" in document.paths["/v1/passes"].post.responses);
    assertEquals(conflict.status, 409);
    await client("b").contribute("1-lead", "w", {
      shape: [1],
      values: Float32Array.of(3),
      numSamples: 1,
    });
    const done = await client("b").wait("1-lead", 5_000);
    assertEquals((await client("b").block(done.layers[0]!.cid!)).values, Float32Array.of(2));
    assertEquals((await call("DELETE", "/v1/passes?before_round=9")).value, {
      removed: ["1-lead"],
    });
  });
});
