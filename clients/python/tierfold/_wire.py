"""The small formats of the rank leg: tags, handshake, length prefix, refusal note. All little-endian.

    handshake, rank to relay   u32 0xF10D17C0, u32 protocol version, u32 rank, u32 world size
    answer                     u32 0xF10D17C1, u32 protocol version
    refusal note               u32 0xFFFFFFFF, u32 length n, 8 bytes tag64(salt, text), n bytes of UTF-8

Format: flodl 0.6.0; the refusal note is Tierfold's (wire/refusal.ts).
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from typing import Optional, Union

from ._limits import MAX_FRAME_BYTES, MAX_REFUSAL_BYTES, TAG_BYTES
from .errors import WireError

Bytes = Union[bytes, bytearray, memoryview]

RANK_MAGIC = 0xF10D17C0
ACK_MAGIC = 0xF10D17C1
CHALLENGE_MAGIC = 0xF10D17C2
# The protocol version that carries f32 only.
PROTOCOL_F32 = 2

ACK_BYTES = 8
LENGTH_BYTES = 4
REFUSAL_MARK = 0xFFFF_FFFF
REFUSAL_HEADER_BYTES = 8 + TAG_BYTES


class Tag64:
    """A tag under construction: the first 8 bytes of HMAC-SHA256. Reads memory where it lies."""

    def __init__(self, salt: bytes) -> None:
        self._hmac = hmac.new(salt, digestmod=hashlib.sha256)

    def update(self, data: Bytes) -> None:
        self._hmac.update(data)

    def digest(self) -> bytes:
        return self._hmac.digest()[:TAG_BYTES]


def tag64(salt: bytes, data: Bytes) -> bytes:
    """The tag of some bytes."""
    tag = Tag64(salt)
    tag.update(data)
    return tag.digest()


def tags_equal(a: Bytes, b: Bytes) -> bool:
    """Whether two tags are equal, in time that does not depend on where they differ."""
    return hmac.compare_digest(bytes(a), bytes(b))


def encode_handshake(rank: int, world_size: int, version: int = PROTOCOL_F32) -> bytes:
    """A rank's handshake: 16 bytes."""
    return struct.pack("<4I", RANK_MAGIC, version, rank, world_size)


def decode_ack(data: Bytes, version: int = PROTOCOL_F32) -> None:
    """Checks the relay's answer; raises WireError when it is none."""
    _decode_answer(data, ACK_MAGIC, version, "reading the relay's answer to the handshake")


def decode_challenge(data: Bytes, version: int) -> None:
    """Checks what stands in front of a challenge's nonce; raises WireError when it is something else."""
    _decode_answer(data, CHALLENGE_MAGIC, version, "reading the relay's challenge")


def _decode_answer(data: Bytes, wanted: int, version: int, what: str) -> None:
    if len(data) != ACK_BYTES:
        raise WireError("truncated", f"{what}: {len(data)} bytes came, expected {ACK_BYTES}")
    magic, answered = struct.unpack("<2I", data)
    if magic != wanted:
        raise WireError("magic", f"{what}: magic {magic:#x}, expected {wanted:#x}")
    if answered != version:
        raise WireError("version", f"{what}: protocol version {answered}, expected {version}")


def encode_length(length: int) -> bytes:
    """The length prefix of a frame; the frame's layout has bounded it."""
    assert 0 <= length <= MAX_FRAME_BYTES
    return struct.pack("<I", length)


def decode_length(data: Bytes, ceiling: int) -> int:
    """The length in the first 4 bytes; raises WireError above the ceiling."""
    if len(data) < LENGTH_BYTES:
        raise WireError(
            "truncated",
            f"reading a length prefix: {len(data)} bytes came, expected {LENGTH_BYTES}",
        )
    (length,) = struct.unpack_from("<I", data)
    if length > ceiling:
        raise WireError(
            "ceiling",
            f"reading a length prefix: {length} bytes announced, above the frame ceiling of {ceiling}",
        )
    return int(length)


def is_refusal(data: Bytes) -> bool:
    """Whether the first 4 bytes start a refusal note."""
    return len(data) >= 4 and struct.unpack_from("<I", data)[0] == REFUSAL_MARK


def refusal_text_length(header: Bytes) -> Optional[int]:
    """The length of a note's text, from its header; None when it announces more than a note holds."""
    (length,) = struct.unpack_from("<I", header, 4)
    return int(length) if length <= MAX_REFUSAL_BYTES else None


def decode_refusal(note: Bytes, salt: bytes) -> Optional[str]:
    """The text of a whole note, or None when its tag is not one of our session's."""
    if len(note) < REFUSAL_HEADER_BYTES or not is_refusal(note):
        return None
    text = bytes(note[REFUSAL_HEADER_BYTES:])
    if refusal_text_length(note) != len(text):
        return None
    if not tags_equal(tag64(salt, text), note[8:REFUSAL_HEADER_BYTES]):
        return None
    return text.decode("utf-8", errors="replace")
