import { assertEquals } from "@std/assert";
import { applyChange, type EventView, STATE_LIMITS } from "../../observe/state.ts";
import { emptyDocument } from "./documents.ts";

function event(id: number): EventView {
  const text = `event ${id}`;
  return { id, atMs: id, kind: "session", level: "info", round: null, host: null, ranks: [], text };
}

Deno.test("a change sets fields, appends to lists, and leaves the document before it alone", () => {
  const before = emptyDocument(2);
  const after = applyChange(before, {
    nowMs: 7,
    set: { phase: "running", kernel: "simd" },
    append: { events: [event(0)] },
  });
  assertEquals(after, {
    ...before,
    nowMs: 7,
    phase: "running",
    kernel: "simd",
    events: [event(0)],
  });
  assertEquals(before.events, []);
});

Deno.test("lists that grow forget their oldest entries at the limit", () => {
  let document = emptyDocument(1);
  for (let id = 0; id < STATE_LIMITS.events + 3; id++) {
    document = applyChange(document, { nowMs: id, set: {}, append: { events: [event(id)] } });
  }
  assertEquals(document.events.length, STATE_LIMITS.events);
  assertEquals(document.events[0]?.id, 3);
  assertEquals(document.events.at(-1)?.id, STATE_LIMITS.events + 2);
});
