// Certificates made with openssl, as docs/operations.md says; some of them bad in one way.
import type { TlsIdentity } from "../../transport/tls_identity.ts";

/** Why certificates cannot be made here; undefined when they can. */
export const noCertificates: string | undefined = await findOpenssl();

async function findOpenssl(): Promise<string | undefined> {
  try {
    await new Deno.Command("openssl", { args: ["version"], stdout: "null" }).output();
    return undefined;
  } catch {
    return "no openssl";
  }
}

/** A test that needs certificates; skipped by name where there is no openssl. */
export function tlsTest(name: string, fn: (files: Certificates) => Promise<void>): void {
  Deno.test({
    name: noCertificates === undefined ? name : `${name} (skipped: ${noCertificates})`,
    ignore: noCertificates !== undefined,
    fn: async () => await fn(await certificates()),
  });
}

/** File names by what they hold. */
export interface CertificateFiles {
  readonly cert: string;
  readonly key: string;
  readonly ca: string;
}

/** A folder of certificates: two CAs, and identities issued by them. */
export class Certificates {
  readonly folder: string;

  constructor(folder: string) {
    this.folder = folder;
  }

  /** The files of an identity, which trusts the CA named `ca`. */
  files(name: string, ca = "ca"): CertificateFiles {
    const file = (name: string) => `${this.folder}/${name}`;
    return { cert: file(`${name}.crt`), key: file(`${name}.key`), ca: file(`${ca}.crt`) };
  }

  /** An identity, as PEM. */
  identity(name: string, ca = "ca"): TlsIdentity {
    const { cert, key, ...more } = this.files(name, ca);
    const read = Deno.readTextFileSync;
    return { cert: read(cert), key: read(key), ca: read(more.ca) };
  }
}

let made: Promise<Certificates> | undefined;

/**
 * The certificates, made once a process: `controller` and `relay` are good; `stranger` is issued by
 * another CA, `elsewhere` has another name, `expired` is of the day before.
 */
export function certificates(): Promise<Certificates> {
  return made ??= make();
}

const CURVE = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"];
const HERE = "subjectAltName=DNS:localhost,IP:127.0.0.1";

async function make(): Promise<Certificates> {
  const folder = await Deno.makeTempDir({ prefix: "tierfold-tls-" });
  globalThis.addEventListener("unload", () => Deno.removeSync(folder, { recursive: true }));
  const openssl = async (...args: string[]) => {
    const { success, stderr } = await new Deno.Command("openssl", { args, cwd: folder }).output();
    if (!success) throw new Error(`openssl ${args[0]}: ${new TextDecoder().decode(stderr)}`);
  };
  for (const name of ["ca", "other-ca"]) {
    const files = ["-keyout", `${name}.key`, "-out", `${name}.crt`];
    await openssl("req", "-x509", ...CURVE, ...files, "-days", "2", "-subj", `/CN=${name}`);
  }
  const issue = async (name: string, ca: string, san: string, days: string) => {
    const files = ["-keyout", `${name}.key`, "-out", `${name}.csr`];
    await openssl("req", ...CURVE, ...files, "-subj", `/CN=${name}`);
    await Deno.writeTextFile(`${folder}/${name}.cnf`, `basicConstraints=CA:FALSE\n${san}\n`);
    await openssl(
      ...["x509", "-req", "-in", `${name}.csr`, "-CA", `${ca}.crt`, "-CAkey", `${ca}.key`],
      ...["-CAcreateserial", "-days", days, "-extfile", `${name}.cnf`, "-out", `${name}.crt`],
    );
  };
  await issue("controller", "ca", HERE, "2");
  await issue("relay", "ca", HERE, "2");
  await issue("stranger", "other-ca", HERE, "2");
  await issue("elsewhere", "ca", "subjectAltName=DNS:elsewhere.example", "2");
  await issue("expired", "ca", HERE, "-1");
  return new Certificates(folder);
}
