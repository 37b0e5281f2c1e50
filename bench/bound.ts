/**
 * What no implementation of the plain authenticated wire can beat on a machine: the time its cores need
 * to hash what the wire makes them hash.
 *
 * In model images of M bytes, for R ranks on H hosts, with one relay per host and one controller:
 *
 *     every rank signs its frame                                   R
 *     relays verify their ranks' frames                            R
 *     every relay signs its fold's frame and its record           2H
 *     the controller verifies both tags of every relay's fold     2H
 *     the controller signs the result's frame and its record       2
 *     every relay verifies the result's record                     H
 *     every rank verifies the result's frame                       R
 *                                                         3R + 5H + 2
 *
 * For 4 ranks on one host these are 19 images. The bound divides them by the hash rate of one core
 * times the cores, as if all hashing could be spread evenly and nothing else cost anything: no copies,
 * no system calls, no sums, and no waiting of one tier for another.
 *
 * On sealed channels a record's tag does not go over its frame once more, and the relay verifies the
 * result's frame instead of its record: 3R + 3H + 1, or 16 of the 19.
 *
 * @module
 */

/** Model images that sealed channels hash in one round. */
export function sealedImages(ranks: number, hosts: number): number {
  return 3 * ranks + 3 * hosts + 1;
}

/** Model images hashed in one round by all processes together, on the plain wire. */
export function hashedImages(ranks: number, hosts: number): number {
  return 3 * ranks + 5 * hosts + 2;
}

/**
 * The bound of one round in milliseconds.
 *
 * @param shape Ranks, hosts and the bytes of one model as they travel: half the f32 bytes with bf16.
 * @param hashGbS HMAC-SHA256 of one core in GB/s (10^9 bytes per second).
 * @param cores Cores that hash at the same time.
 */
export function boundMs(
  shape: { ranks: number; hosts: number; wireBytes: number },
  hashGbS: number,
  cores: number,
): number {
  const images = hashedImages(shape.ranks, shape.hosts);
  return images * shape.wireBytes / (hashGbS * cores * 1e9) * 1e3;
}

/**
 * The least time in milliseconds that a star needs for the bytes alone: the controller's link carries
 * one model per remote host in, then one per remote host out.
 *
 * @param remoteHosts Hosts whose relay reaches the controller over the link; hosts - 1 when the
 *     controller shares a host.
 * @param linkBitS Speed of every link, in bits per second.
 */
export function starBoundMs(remoteHosts: number, bytes: number, linkBitS: number): number {
  return 2 * remoteHosts * bytes * 8 / linkBitS * 1e3;
}

/**
 * The least time in milliseconds that a ring all-reduce needs for the bytes alone: in 2 (N - 1) steps
 * every rank passes 1/N of the model to the next, and with hosts in order one flow leaves each host.
 */
export function ringBoundMs(ranks: number, bytes: number, linkBitS: number): number {
  return 2 * (ranks - 1) / ranks * bytes * 8 / linkBitS * 1e3;
}
