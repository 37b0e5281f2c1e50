/**
 * Which ranks a relay lets in.
 *
 * @module
 */
import { WireError } from "../wire/errors.ts";
import type { RankHandshake } from "../wire/handshake.ts";
import type { RelaySettings } from "./settings.ts";

/**
 * Checks that a rank belongs to this host.
 *
 * @param peer The address that it comes from.
 * @param connected The address of a connection that has its place already.
 * @throws {WireError} when it does not.
 */
export function expectMember(
  { rank, worldSize }: RankHandshake,
  settings: RelaySettings,
  peer: string,
  connected: string | undefined,
): void {
  const refuse = (text: string) =>
    new WireError("handshake", "connection", `letting in rank ${rank} at ${peer}: ${text}`);
  const { host, ranks } = settings;
  if (worldSize !== settings.worldSize) {
    throw refuse(`it says world size ${worldSize}, this session has ${settings.worldSize}`);
  }
  if (!ranks.includes(rank)) {
    throw refuse(`it is not one of host ${host}'s ranks (${ranks.join(", ")})`);
  }
  if (connected !== undefined) throw refuse(`it is connected already, from ${connected}`);
}
