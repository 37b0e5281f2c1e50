/**
 * Who a process is under TLS: its certificate, the key to it, and the CA that its peers must be signed by.
 *
 * @module
 */
import { createPrivateKey, type KeyObject, X509Certificate } from "node:crypto";

/** A certificate with its key and the CA, each as PEM text. */
export interface TlsIdentity {
  /** Our certificate, issued by the CA; certificates between the two may follow it. */
  cert: string;
  /** The private key of our certificate. Never to be printed or logged. */
  key: string;
  /** The CA's certificate, or several: only peers with a certificate issued by one are spoken to. */
  ca: string;
}

const BLOCK = /-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----/g;

/**
 * Checks that the three belong together, so that a mistake shows at the start and not at the first peer.
 *
 * @param now The time at which the certificates must be valid.
 * @throws {RangeError} when they do not; nothing of the key is repeated.
 */
export function checkIdentity(identity: TlsIdentity, now: Date): void {
  const [own] = certificates(identity.cert, "the certificate");
  const authorities = certificates(identity.ca, "the CA");
  expectValid(own!, "the certificate", now);
  for (const authority of authorities) expectValid(authority, "the CA", now);
  if (own!.ca) {
    throw new RangeError(
      "the certificate is that of a CA; a process needs one of its own, issued by the CA " +
        "(basicConstraints CA:FALSE)",
    );
  }
  if (!own!.checkPrivateKey(privateKey(identity.key))) {
    throw new RangeError("the key does not belong to the certificate");
  }
  // Where certificates stand between the two, the peers' check of the chain has to do.
  const direct = certificates(identity.cert, "the certificate").length === 1;
  if (direct && !authorities.some((ca) => own!.checkIssued(ca) && own!.verify(ca.publicKey))) {
    throw new RangeError("the certificate was not issued by the CA");
  }
}

function certificates(pem: string, what: string): X509Certificate[] {
  const blocks = pem.match(BLOCK) ?? [];
  if (blocks.length === 0) throw new RangeError(`${what} is not a certificate in PEM form`);
  try {
    return blocks.map((block) => new X509Certificate(block));
  } catch (error) {
    const text = error instanceof Error ? error.message : String(error);
    throw new RangeError(`${what} cannot be read: ${text}`);
  }
}

function privateKey(pem: string): KeyObject {
  try {
    return createPrivateKey(pem);
  } catch {
    // What the parser says of a key is better not repeated.
    throw new RangeError("the key is not a private key in PEM form without a passphrase");
  }
}

function expectValid(certificate: X509Certificate, what: string, now: Date): void {
  const { validFrom, validTo } = certificate;
  if (now < new Date(validFrom)) {
    throw new RangeError(`${what} is not valid yet: it is from ${validFrom} on`);
  }
  if (now > new Date(validTo)) throw new RangeError(`${what} has expired: on ${validTo}`);
}
