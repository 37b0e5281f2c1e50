"""The caller's tensors: numpy arrays and torch tensors, read and written in place.

f32 values that lie contiguously in this machine's memory are hashed, sent and overwritten where they lie.
Other floats, and tensors on another device, go through a copy in f32.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from typing import Any, Optional, Protocol

import numpy as np
from numpy.typing import NDArray

F32 = np.dtype("<f4")
Values = NDArray[np.float32]


class Tensor(Protocol):
    """One tensor of the caller."""

    name: str
    shape: tuple[int, ...]

    def values(self) -> Values:
        """Its values as one vector of f32; a view where there can be one."""

    def store(self, values: Values) -> None:
        """Overwrites its values."""


def torch_module() -> Any:
    """torch, where somebody has imported it: no tensor of torch exists otherwise."""
    return sys.modules.get("torch")


def is_torch(value: object) -> bool:
    """Whether a value is a tensor of torch."""
    torch = torch_module()
    return torch is not None and isinstance(value, torch.Tensor)


class _NumpyTensor:
    def __init__(self, name: str, array: NDArray[Any]) -> None:
        if array.dtype.kind != "f":
            raise TypeError(_not_float(name, array.dtype))
        if not array.flags.writeable:
            raise ValueError(
                f"sending {name}: the array is read-only, and results are written into it"
            )
        self.name = name
        self.shape = array.shape
        self._array = array
        # A view for C order, which is how tensors lie in a frame.
        self._flat: Optional[Values] = (
            array.reshape(-1) if array.dtype == F32 and array.flags.c_contiguous else None
        )

    def values(self) -> Values:
        if self._flat is not None:
            return self._flat
        return np.ascontiguousarray(self._array, dtype=F32).reshape(-1)

    def store(self, values: Values) -> None:
        if self._flat is not None:
            np.copyto(self._flat, values)
        else:
            np.copyto(self._array, values.reshape(self.shape), casting="same_kind")


class _TorchTensor:
    def __init__(self, name: str, tensor: Any) -> None:
        torch = torch_module()
        if not tensor.is_floating_point():
            raise TypeError(_not_float(name, tensor.dtype))
        if tensor.layout != torch.strided or tensor.is_meta:
            raise TypeError(
                f"sending {name}: expected a dense tensor with values, got {tensor.layout}"
            )
        self.name = name
        self.shape = tuple(tensor.shape)
        self._tensor = tensor.detach()
        here = tensor.device.type == "cpu" and tensor.dtype == torch.float32
        self._flat: Optional[Values] = (
            self._tensor.numpy().reshape(-1)
            if here and tensor.is_contiguous() and sys.byteorder == "little"
            else None
        )

    def values(self) -> Values:
        if self._flat is not None:
            return self._flat
        torch = torch_module()
        copy = self._tensor.to(device="cpu", dtype=torch.float32).contiguous().numpy()
        return np.ascontiguousarray(copy, dtype=F32).reshape(-1)

    def store(self, values: Values) -> None:
        if self._flat is not None:
            np.copyto(self._flat, values)
            return
        torch = torch_module()
        native = values.astype(np.float32).reshape(self.shape)
        with torch.no_grad():
            self._tensor.copy_(torch.from_numpy(native))


def _not_float(name: str, dtype: object) -> str:
    return (
        f"sending {name}: dtype {dtype}, expected floats; integers are averaged by nobody: "
        "average_state_dict takes the largest"
    )


def normalize(tensors: object) -> list[Tensor]:
    """One array, a list of them, or a mapping from names to them, as tensors with names.

    Raises TypeError or ValueError, naming the tensor, when one cannot be sent.
    """
    return [_wrap(name, value) for name, value in _named(tensors)]


def _named(tensors: object) -> Iterable[tuple[str, object]]:
    if isinstance(tensors, Mapping):
        return [(str(name), value) for name, value in tensors.items()]
    if isinstance(tensors, np.ndarray) or is_torch(tensors):
        return [("tensor 0", tensors)]
    if isinstance(tensors, Iterable) and not isinstance(tensors, (str, bytes)):
        return [(f"tensor {i}", value) for i, value in enumerate(tensors)]
    raise TypeError(
        f"sending tensors: expected an array, a list or a dict of arrays, got {type(tensors).__name__}"
    )


def _wrap(name: str, value: object) -> Tensor:
    if isinstance(value, np.ndarray):
        return _NumpyTensor(name, value)
    if is_torch(value):
        return _TorchTensor(name, value)
    raise TypeError(
        f"sending {name}: expected a numpy array or a torch tensor, got {type(value).__name__}"
    )
