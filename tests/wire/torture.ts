// What every decoder's test does to bytes: cut them, flip them, lengthen them, share them.
import { AssertionError } from "@std/assert";
import { WireError, type WireErrorCode } from "../../wire/errors.ts";

/** Runs `action`, which must throw a WireError that costs its sender the connection. */
export function refused(
  action: () => unknown,
  what: string,
  code?: WireErrorCode,
  message?: RegExp,
): WireError {
  let outcome: unknown;
  try {
    action();
  } catch (error) {
    if (!(error instanceof WireError)) {
      throw new AssertionError(`${what}: threw ${error} instead of a WireError`);
    }
    if (error.scope !== "connection") {
      throw new AssertionError(`${what}: scope ${error.scope}, expected connection`);
    }
    if (code !== undefined && error.code !== code) {
      throw new AssertionError(`${what}: refused as ${error.code} (${error.message}), not ${code}`);
    }
    if (message !== undefined && !message.test(error.message)) {
      throw new AssertionError(`${what}: "${error.message}" does not match ${message}`);
    }
    outcome = error;
  }
  if (outcome === undefined) throw new AssertionError(`${what}: accepted, expected a refusal`);
  return outcome as WireError;
}

/** Runs `action`; a WireError is returned as undefined, any other error fails the test. */
export function tryDecode<T>(action: () => T): T | undefined {
  try {
    return action();
  } catch (error) {
    if (error instanceof WireError) return undefined;
    throw error;
  }
}

/** Calls `visit` with every proper prefix of `bytes`, the empty one first. */
export function eachCut(bytes: Uint8Array, visit: (cut: Uint8Array) => void): void {
  for (let length = 0; length < bytes.length; length++) visit(bytes.slice(0, length));
}

/**
 * Calls `visit` with a copy of `bytes` in which one bit is flipped; the copy is flipped back after.
 *
 * @param everyBit False to flip one bit of each byte only, for long inputs.
 */
export function eachFlip(
  bytes: Uint8Array,
  visit: (flipped: Uint8Array, bit: number) => void,
  everyBit = true,
): void {
  const copy = bytes.slice();
  for (let byte = 0; byte < bytes.length; byte++) {
    for (let bit = everyBit ? 0 : byte % 8; bit < 8; bit += everyBit ? 1 : 8) {
      copy[byte]! ^= 1 << bit;
      visit(copy, 8 * byte + bit);
      copy[byte]! ^= 1 << bit;
    }
  }
}

/** The same bytes in shared memory, at an odd offset, with other bytes around them. */
export function inSharedMemory(bytes: Uint8Array): Uint8Array {
  const memory = new WebAssembly.Memory({
    initial: Math.ceil((bytes.length + 14) / 65_536),
    maximum: 1_024,
    shared: true,
  });
  const all = new Uint8Array(memory.buffer).fill(0xa5);
  all.set(bytes, 7);
  return all.subarray(7, 7 + bytes.length);
}

/** The same bytes in ordinary memory, at an odd offset, with other bytes around them. */
export function amongOthers(bytes: Uint8Array): Uint8Array {
  const all = new Uint8Array(bytes.length + 14).fill(0x5a);
  all.set(bytes, 7);
  return all.subarray(7, 7 + bytes.length);
}

/** The given pieces, one after another. */
export function concat(...pieces: Uint8Array[]): Uint8Array<ArrayBuffer> {
  const all = new Uint8Array(pieces.reduce((sum, piece) => sum + piece.length, 0));
  let at = 0;
  for (const piece of pieces) {
    all.set(piece, at);
    at += piece.length;
  }
  return all;
}

/**
 * Fails when calls of `action` take `limit` bytes of memory or more, even if they drop them again: the
 * collector cannot have come by in half of the calls.
 */
export function expectLittleMemory(limit: number, action: () => void): void {
  const used = () => {
    const { heapUsed, external } = Deno.memoryUsage();
    return heapUsed + external;
  };
  // What an action takes it takes every time; now and then the engine takes memory of its own.
  const taken = Array.from({ length: 50 }, () => {
    const before = used();
    action();
    return used() - before;
  }).sort((a, b) => a - b)[25]!;
  if (taken >= limit) {
    throw new AssertionError(`${taken} bytes of memory taken, less than ${limit} expected`);
  }
}
