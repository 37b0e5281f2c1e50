"""Every bound of the wire, once (wire/limits.ts has the reasons)."""

from __future__ import annotations

SALT_BYTES = 16
TAG_BYTES = 8
# Least ceiling of a process that knows its model.
MIN_FRAME_CEILING = 64 * 1024**2
# Most bytes that a u32 length can announce; the value above marks a refusal.
MAX_FRAME_BYTES = 0xFFFF_FFFE
MAX_TENSORS = 65_536
MAX_DIMS = 255
MAX_WORLD_SIZE = 131_072
MAX_REFUSAL_BYTES = 1024


def frame_ceiling_for(model_bytes: int) -> int:
    """The ceiling of a process that knows its model's size."""
    return min(max(2 * model_bytes, MIN_FRAME_CEILING), MAX_FRAME_BYTES)
