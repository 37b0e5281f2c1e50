"""The RoundFrame: a rank's contribution or a round's result.

    0   u32 magic 0xF10D17F1
    4   u32 number of tensors, at most 65,536
    8   u8  kind                 0 Model, 1 Control
    9   f64 weight               finite, >= 0
    17  per tensor: u8 dtype (0 f32), u8 ndim, u32 x ndim shape, u64 nbytes, data
    end tag64(salt, everything above)

All little-endian. Format: flodl 0.6.0.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Optional

from ._limits import MAX_DIMS, MAX_FRAME_BYTES, MAX_TENSORS, TAG_BYTES
from ._wire import Bytes, tag64, tags_equal
from .errors import WireError

FRAME_MAGIC = 0xF10D17F1
DTYPE_F32 = 0
KINDS = ("model", "control")

FRAME_HEADER_BYTES = 17
# Bytes of a tensor's header without its dims.
TENSOR_FIXED_BYTES = 10


@dataclass(frozen=True)
class TensorHeader:
    """One tensor's header, and where its data lies."""

    dtype: int
    shape: tuple[int, ...]
    nbytes: int
    # Offset of the data from the start of the frame.
    at: int


@dataclass(frozen=True)
class FrameHeader:
    """Everything of a frame but its numbers."""

    kind: str
    weight: float
    tensors: tuple[TensorHeader, ...]
    # Bytes of the whole frame, its tag included.
    length: int


def layout_frame(
    shapes: Sequence[tuple[int, ...]], names: Optional[Sequence[str]] = None
) -> tuple[TensorHeader, ...]:
    """Where each f32 tensor lies in a frame.

    Raises ValueError, naming the tensor, when the format cannot say it.
    """
    if len(shapes) > MAX_TENSORS:
        raise ValueError(
            f"laying out a frame: {len(shapes)} tensors, a frame holds at most {MAX_TENSORS}"
        )
    at = FRAME_HEADER_BYTES
    headers = []
    for i, shape in enumerate(shapes):
        name = f"tensor {i}" if names is None else names[i]
        if len(shape) > MAX_DIMS:
            raise ValueError(
                f"laying out a frame: {name} has {len(shape)} dims, at most {MAX_DIMS} fit"
            )
        odd = next((dim for dim in shape if not 0 <= dim <= 0xFFFF_FFFF), None)
        if odd is not None:
            raise ValueError(
                f"laying out a frame: {name} has the dim {odd}, a dim is from 0 to 2^32 - 1"
            )
        nbytes = 4 * math.prod(shape)
        at += TENSOR_FIXED_BYTES + 4 * len(shape)
        headers.append(TensorHeader(DTYPE_F32, tuple(shape), nbytes, at))
        at += nbytes
    if frame_length(headers) > MAX_FRAME_BYTES:
        raise ValueError(
            f"laying out a frame: {frame_length(headers)} bytes, a frame has at most "
            f"{MAX_FRAME_BYTES}; use several rounds"
        )
    return tuple(headers)


def frame_length(tensors: Sequence[TensorHeader]) -> int:
    """Bytes of a frame of these tensors, its tag included."""
    end = tensors[-1].at + tensors[-1].nbytes if tensors else FRAME_HEADER_BYTES
    return end + TAG_BYTES


def encode_start(kind: str, weight: float, count: int) -> bytes:
    """The bytes in front of the first tensor."""
    return struct.pack("<2IBd", FRAME_MAGIC, count, KINDS.index(kind), weight)


def encode_tensor_header(tensor: TensorHeader) -> bytes:
    """The bytes in front of a tensor's data."""
    ndim = len(tensor.shape)
    return struct.pack(f"<2B{ndim}IQ", tensor.dtype, ndim, *tensor.shape, tensor.nbytes)


def _refuse(code: str, text: str) -> WireError:
    return WireError(code, f"reading a round frame: {text}")


def parse_headers(frame: Bytes, ceiling: int) -> Optional[FrameHeader]:
    """Reads all headers; None when the bytes end inside them.

    ``ceiling`` bounds the bytes of all tensors' data. Raises WireError as soon as a byte is impossible.
    """
    if len(frame) < FRAME_HEADER_BYTES:
        if len(frame) >= 4:
            _check_magic(struct.unpack_from("<I", frame)[0])
        return None
    magic, count, kind, weight = struct.unpack_from("<2IBd", frame)
    _check_magic(magic)
    if count > MAX_TENSORS:
        raise _refuse("tensor-count", f"tensor count {count} is above {MAX_TENSORS}")
    if kind >= len(KINDS):
        raise _refuse("kind", f"unknown round kind {kind}, expected 0 or 1")
    if not (math.isfinite(weight) and weight >= 0):
        raise _refuse("weight", f"weight {weight} is not finite and non-negative")
    at = FRAME_HEADER_BYTES
    data_bytes = 0
    tensors = []
    for i in range(count):
        if len(frame) < at + 2:
            return None
        dtype, ndim = frame[at], frame[at + 1]
        data_at = at + TENSOR_FIXED_BYTES + 4 * ndim
        if len(frame) < data_at:
            return None
        *shape, nbytes = struct.unpack_from(f"<{ndim}IQ", frame, at + 2)
        data_bytes += nbytes
        if data_bytes > ceiling:
            raise _refuse(
                "ceiling",
                f"tensor {i} brings the data to {data_bytes} bytes, above the frame ceiling of {ceiling}",
            )
        tensors.append(TensorHeader(dtype, tuple(shape), nbytes, data_at))
        at = data_at + nbytes
    return FrameHeader(KINDS[kind], weight, tuple(tensors), at + TAG_BYTES)


def _check_magic(magic: int) -> None:
    if magic != FRAME_MAGIC:
        raise _refuse("magic", f"magic {magic:#x}, expected {FRAME_MAGIC:#x}")


def expect_whole(header: Optional[FrameHeader], length: int, authentic: bool) -> FrameHeader:
    """Checks that a frame is as long as the blob that carried it, and authentic.

    Raises WireError when it is cut short, bytes follow it, or its tag does not match.
    """
    mac = (
        "verifying a round frame: its MAC does not match; the salts of the two processes differ, or "
        "bytes were changed on the way"
    )
    if header is None:
        # Headers that ask for more than came are only believed of bytes that nobody changed.
        if not authentic and length >= FRAME_HEADER_BYTES + TAG_BYTES:
            raise WireError(
                "mac", f"{mac}; its {length} bytes end inside its headers, so it may be truncated"
            )
        raise _refuse("truncated", f"it is truncated: its {length} bytes end inside its headers")
    if header.length != length:
        cut = length < header.length
        raise _refuse(
            "truncated" if cut else "trailing",
            f"{'it is truncated: ' if cut else ''}{length} bytes came, its headers need {header.length}",
        )
    if not authentic:
        raise WireError("mac", mac)
    return header


def decode_frame(frame: Bytes, salt: bytes, ceiling: int) -> FrameHeader:
    """Decodes one whole frame, its tag included; data lies in ``frame`` at each tensor's ``at``."""
    view = memoryview(frame)
    header = parse_headers(view, ceiling)
    end = max(len(view) - TAG_BYTES, 0)
    authentic = tags_equal(tag64(salt, view[:end]), view[end:])
    return expect_whole(header, len(view), authentic)


def check_answer(
    header: FrameHeader,
    kind: str,
    sent: Sequence[TensorHeader],
    names: Sequence[str],
    what: str,
) -> None:
    """Checks that a round's result fits what was sent; raises WireError naming the tensor."""
    if header.kind != kind:
        raise WireError("schema", f"{what}: it is a {header.kind} frame, expected {kind}")
    if len(header.tensors) != len(sent):
        raise WireError(
            "schema", f"{what}: it has {len(header.tensors)} tensors, expected {len(sent)}"
        )
    for got, wanted, name in zip(header.tensors, sent, names):
        if got.dtype != DTYPE_F32:
            raise WireError(
                "dtype", f"{what}: {name} has dtype {got.dtype}, expected {DTYPE_F32} (f32)"
            )
        if got.shape != wanted.shape:
            raise WireError(
                "schema",
                f"{what}: {name} has shape {list(got.shape)}, expected {list(wanted.shape)}",
            )
        if got.nbytes != wanted.nbytes:
            raise WireError(
                "shape",
                f"{what}: {name} of shape {list(got.shape)} needs {wanted.nbytes} bytes and carries "
                f"{got.nbytes}",
            )
