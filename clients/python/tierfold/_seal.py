"""Seals: what binds a connection's frames to this one connection, and to their place in it.

    key    first 16 bytes of HMAC-SHA256(salt, "tierfold rank seal 1", rank's nonce, relay's nonce)
    seal   tag64(key, u8 direction, u64 number, the frame's own tag), in the place of that tag

See docs/protocol.md, "Seals".
"""

from __future__ import annotations

import hashlib
import hmac
import struct

from ._limits import SALT_BYTES
from ._wire import Bytes, tag64

# Added to the protocol version by a rank that wants its connection sealed.
SEALED = 0x200
NONCE_BYTES = 16

UP = 1
DOWN = 2


def seal_key(salt: bytes, rank_nonce: bytes, relay_nonce: bytes) -> bytes:
    """The key of a connection's seals."""
    text = b"tierfold rank seal 1" + rank_nonce + relay_nonce
    return hmac.new(salt, text, hashlib.sha256).digest()[:SALT_BYTES]


class Seals:
    """The seals of one direction, in the order of what they seal."""

    def __init__(self, key: bytes, direction: int) -> None:
        self._key = key
        self._direction = direction
        self._number = 0

    def next(self, tag: Bytes) -> bytes:
        """The seal of what comes next, from its own tag."""
        head = struct.pack("<BQ", self._direction, self._number)
        self._number += 1
        return tag64(self._key, head + bytes(tag))
