// The sign by which the publisher's thread knows that a round is near.
import { assertEquals } from "@std/assert";
import { roundIsNear, RoundSign } from "../../controller/delta/round_sign.ts";
import { until } from "./sockets.ts";

Deno.test("a round is near while it lasts and for half as long afterwards", async () => {
  const sign = new RoundSign();
  assertEquals(roundIsNear(sign.shared), false);
  sign.begin();
  assertEquals(roundIsNear(sign.shared), true);
  await new Promise((resolve) => setTimeout(resolve, 400));
  assertEquals(roundIsNear(sign.shared), true);
  sign.end();
  assertEquals(roundIsNear(sign.shared), true);
  await until(() => !roundIsNear(sign.shared), "it has died away");
  // The next round may begin while the result of the one before is still on its way.
  sign.begin();
  assertEquals(roundIsNear(sign.shared), true);
});
