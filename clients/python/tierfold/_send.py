"""Sending a frame: scaled, hashed and written chunk by chunk, from where the values lie."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional

import numpy as np

from ._frame import TensorHeader, encode_start, encode_tensor_header, frame_length
from ._link import Deadline, Link
from ._seal import Seals
from ._tensors import F32, Tensor, Values
from ._wire import Bytes, Tag64, encode_length

# Values scaled, hashed and written at a time: small enough to stay in the second-level cache.
CHUNK_VALUES = 128 * 1024
# Pieces below this many bytes are gathered into one write.
GATHER_BYTES = 64 * 1024


class FrameWriter:
    """Writes one frame of one round."""

    def __init__(
        self, link: Link, salt: bytes, seals: Optional[Seals], what: str, deadline: Deadline
    ) -> None:
        self._link = link
        self._what = what
        self._deadline = deadline
        self._tag = Tag64(salt)
        self._seals = seals
        self._gathered = bytearray()
        # Bytes since it last looked whether the relay speaks.
        self._unheard = 0

    def send(
        self,
        tensors: Sequence[Tensor],
        layout: Sequence[TensorHeader],
        kind: str,
        weight: float,
        factor: float,
    ) -> bool:
        """Sends the values times ``factor``, in f32.

        Returns True, with the frame incomplete, when the relay speaks before its turn: it refuses this rank.
        """
        self._gathered += encode_length(frame_length(layout))
        self._hashed(encode_start(kind, weight, len(layout)))
        scratch = np.zeros(min(CHUNK_VALUES, _most_values(layout)), dtype=F32)
        for tensor, header in zip(tensors, layout):
            self._hashed(encode_tensor_header(header))
            # A rank without work contributes zeros, whatever its tensors hold: 0 x infinity would be NaN.
            values = tensor.values() if factor != 0 else None
            for start in range(0, header.nbytes // 4, CHUNK_VALUES):
                end = min(start + CHUNK_VALUES, header.nbytes // 4)
                self._hashed(_bytes(_scaled(values, start, end, factor, scratch)))
                if self._spoken_to():
                    return True
        tag = self._tag.digest()
        self._gathered += tag if self._seals is None else self._seals.next(tag)
        self._flush()
        return False

    def _spoken_to(self) -> bool:
        """Whether the relay speaks before its turn; looks once per chunk, since looking costs time."""
        if self._unheard < 4 * CHUNK_VALUES:
            return False
        self._unheard = 0
        return self._link.has_input()

    def _hashed(self, piece: Bytes) -> None:
        self._tag.update(piece)
        self._unheard += len(piece)
        if len(piece) >= GATHER_BYTES:
            self._flush()
            self._link.write(piece, self._what, self._deadline)
            return
        self._gathered += piece
        if len(self._gathered) >= GATHER_BYTES:
            self._flush()

    def _flush(self) -> None:
        self._link.write(self._gathered, self._what, self._deadline)
        self._gathered = bytearray()


def _most_values(layout: Sequence[TensorHeader]) -> int:
    return max((header.nbytes // 4 for header in layout), default=0)


def _scaled(values: object, start: int, end: int, factor: float, scratch: Values) -> Values:
    """Values ``start`` to ``end`` times the factor; in ``scratch`` unless they can stay where they are."""
    if values is None:
        return scratch[: end - start]
    assert isinstance(values, np.ndarray)
    part: Values = values[start:end]
    if factor == 1:
        return part
    return np.multiply(part, np.float32(factor), out=scratch[: end - start])


def _bytes(values: Values) -> memoryview:
    return values.view(np.uint8).data
