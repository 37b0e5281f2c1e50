/**
 * Signs a request to the federated intake: prints its headers, one a line, as `curl -H @-` takes them.
 *
 *     TIERFOLD_SALT=... deno run --allow-env=TIERFOLD_SALT --allow-read=FILE \
 *       examples/federated/sign.ts METHOD PATH [FILE]
 *
 * @module
 */

import { signedHeaders } from "../../mod.ts";

const [method = "", path = "", file] = Deno.args;
const salt = Uint8Array.fromHex(Deno.env.get("TIERFOLD_SALT") ?? "");
const body = file === undefined ? undefined : Deno.readFileSync(file);
const headers = signedHeaders({ method, path, ...(body === undefined ? {} : { body }) }, salt);
for (const [name, value] of Object.entries(headers)) console.log(`${name}: ${value}`);
