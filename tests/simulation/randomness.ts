// Random numbers of the product, from a seed.
import { Random } from "./random.ts";

/** Lets `crypto` and `Math` draw from a seed until it is disposed. */
export function seededRandomness(seed: number): Disposable {
  const random = new Random(seed, 0x7364);
  const mathRandom = Math.random;
  Math.random = () => random.int(0, 2 ** 31 - 1) / 2 ** 31;
  Object.defineProperty(crypto, "getRandomValues", {
    configurable: true,
    value: <T extends ArrayBufferView>(into: T): T => {
      const bytes = new Uint8Array(into.buffer, into.byteOffset, into.byteLength);
      for (let i = 0; i < bytes.length; i++) bytes[i] = random.int(0, 255);
      return into;
    },
  });
  return {
    [Symbol.dispose]: () => {
      Math.random = mathRandom;
      // The own property goes, the inherited method stays.
      Reflect.deleteProperty(crypto, "getRandomValues");
    },
  };
}
