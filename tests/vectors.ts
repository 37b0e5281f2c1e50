// Reads the golden vectors that the decoders' tests share.

export interface Vector {
  file: string;
  bytes: number;
  format: string;
  salt?: string;
  error?: string;
  kind?: "model" | "control";
  weight_f64le?: string;
  tensors?: { shape: number[]; f32le?: string }[];
  rank?: number;
  world?: number;
  record?: "data" | "control" | "host_frame" | "broadcast";
  message?: "hello" | "hello_ack" | "rank_exit" | "declare_dead";
  host?: string;
  ranks?: number[];
  payload?: string | null;
  payload_hex?: string;
}

const folder = new URL("./vectors/", import.meta.url);

export const index: { vectors: Vector[]; fedavg_f32le: Record<string, string> } = JSON.parse(
  Deno.readTextFileSync(new URL("index.json", folder)),
);

export function vectorBytes(file: string): Uint8Array<ArrayBuffer> {
  return Deno.readFileSync(new URL(file, folder));
}

export function good(format: string): Vector[] {
  return index.vectors.filter((vector) => vector.format === format && vector.error === undefined);
}

export function bad(format: string): Vector[] {
  return index.vectors.filter((vector) => vector.format === format && vector.error !== undefined);
}

export function unhex(hex: string): Uint8Array<ArrayBuffer> {
  return Uint8Array.from(hex.match(/../g) ?? [], (pair) => parseInt(pair, 16));
}

export function hex(bytes: Uint8Array): string {
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

export const SALT = unhex("000102030405060708090a0b0c0d0e0f");

/** A salt for sessions, which take none that could be guessed. */
export const SESSION_SALT = unhex("9d1c4be07a52f8360ee5b3476d91c82f");
