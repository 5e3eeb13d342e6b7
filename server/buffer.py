"""Memory that graphs read and write in place, on the CPU or on a CUDA device.

A buffer is allocated once, zeroed, and bound by address: nothing is allocated or copied to run.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import onnxruntime
from numpy.typing import ArrayLike, NDArray

from export.manifest import Device

_ALIGNMENT = 64  # bytes; a cache line, and the widest vector register


class Buffer(Protocol):
    """An array of a fixed shape; the first axis is the one that views are taken along."""

    device: str  # as ONNX Runtime spells it
    device_index: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    address: int

    def write(self, values: ArrayLike) -> None:
        """Replaces the leading elements of a buffer of one axis."""


class HostBuffer:
    """Memory of the CPU; `array` is the live content."""

    device = "cpu"
    device_index = 0

    def __init__(self, shape: tuple[int, ...], dtype: str) -> None:
        self.dtype = np.dtype(dtype)
        self.shape = shape
        size = math.prod(shape) * self.dtype.itemsize
        memory = np.zeros(size + _ALIGNMENT, dtype=np.uint8)
        start = -memory.ctypes.data % _ALIGNMENT
        self.array: NDArray[Any] = memory[start : start + size].view(self.dtype).reshape(shape)
        self.address = int(self.array.ctypes.data)

    def write(self, values: ArrayLike) -> None:
        new = np.asarray(values, dtype=self.dtype)
        self.array[: len(new)] = new


class CudaBuffer:
    """Memory of a CUDA device. Writing copies the whole buffer: for small ones only."""

    device = "cuda"

    def __init__(self, shape: tuple[int, ...], dtype: str, device_index: int) -> None:
        self.dtype = np.dtype(dtype)
        self.shape = shape
        self.device_index = device_index
        # Made from zeros: memory that ONNX Runtime allocates by itself is not cleared.
        self._memory = onnxruntime.OrtValue.ortvalue_from_numpy(
            np.zeros(shape, self.dtype), self.device, device_index
        )
        self.address = int(self._memory.data_ptr())

    def write(self, values: ArrayLike) -> None:
        new = np.asarray(values, dtype=self.dtype)
        staged = np.zeros(self.shape, self.dtype)
        staged[: len(new)] = new
        self._memory.update_inplace(staged)


Allocate = Callable[[tuple[int, ...], str], Buffer]


def allocator(device: Device, device_index: int = 0) -> Allocate:
    """What makes buffers (shape, dtype) in the memory of a device."""
    if device is Device.CPU:
        return HostBuffer
    return lambda shape, dtype: CudaBuffer(shape, dtype, device_index)


def bind_input(
    binding: Any, name: str, buffer: Buffer, shape: tuple[int, ...], first: int = 0
) -> None:
    """Binds a graph's input to the buffer from its row `first` on, seen as `shape`."""
    binding.bind_input(
        name, buffer.device, buffer.device_index, buffer.dtype, shape, _locate(buffer, shape, first)
    )


def bind_output(
    binding: Any, name: str, buffer: Buffer, shape: tuple[int, ...], first: int = 0
) -> None:
    """Binds a graph's output to the buffer from its row `first` on, seen as `shape`."""
    binding.bind_output(
        name, buffer.device, buffer.device_index, buffer.dtype, shape, _locate(buffer, shape, first)
    )


def _locate(buffer: Buffer, shape: tuple[int, ...], first: int) -> int:
    """The address of a row; ONNX Runtime checks no bounds, so this does."""
    row = math.prod(buffer.shape[1:])
    if first * row + math.prod(shape) > math.prod(buffer.shape):
        raise IndexError(f"{shape} from row {first} exceeds a buffer of {buffer.shape}")
    return buffer.address + first * row * buffer.dtype.itemsize
