"""Weights in blocks of 32 neighbours of a row, which share a scale and a zero point.

    number = (value - zero point) x scale

Shapes: `R` rows (what a linear layer gives, or a vocabulary), `K` blocks of a row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from export.four_bit_grid import fit_grid

BLOCK = 32
PARTS = ("values", "scales", "zero_points")  # in the order in which the operators read them
Values = NDArray[np.uint8]
Scales = NDArray[np.float32]

_MIDDLE = 128  # of 8 bits: the zero point of every block, which the operators take for granted
_LEVELS = 127  # on either side of it
_SMALLEST_SCALE = np.finfo(np.float32).tiny  # of a block of zeros


@dataclass(frozen=True)
class Blocks:
    """A weight `[R, K x 32]` in blocks.

    Attributes:
        bits: 4 or 8.
        values: uint8 `[R, K, 32]`, each from 0 to `2^bits - 1`.
        scales: fp32 `[R, K]`.
        zero_points: uint8 `[R, K]`.
    """

    bits: int
    values: Values
    scales: Scales
    zero_points: Values

    @classmethod
    def encode(cls, weight: NDArray[np.float32], bits: int) -> Blocks:
        """The blocks of `weight [R, K x 32]`.

        Every step is one correctly rounded operation on each number, and every sum has a fixed
        order, so that all machines find the same bits. A block that is not finite is restored as
        one that is not.
        """
        blocks = weight.reshape(len(weight), -1, BLOCK)
        with np.errstate(invalid="ignore", over="ignore"):
            return _in_eight_bits(blocks) if bits == 8 else _in_four_bits(blocks)

    @classmethod
    def unpack(cls, bits: int, parts: dict[str, NDArray[Any]]) -> Blocks:
        """Reads what `parts` gave."""
        values, scales = parts["values"], parts["scales"]
        if bits == 8:
            return cls(bits, values, scales, np.full(scales.shape, _MIDDLE, np.uint8))
        zero_points = _split_bytes(parts["zero_points"])[:, : scales.shape[1]]
        return cls(bits, _split_bytes(values), scales, zero_points)

    def parts(self) -> dict[str, NDArray[Any]]:
        """The tensors that ONNX Runtime reads: of 4 bits, two in a byte, the first in the low half.

        `values [R, K, 4 x bits]`, `scales [R, K]` and, of 4 bits, `zero_points [R, (K + 1) / 2]`.
        """
        if self.bits == 8:
            return {"values": self.values, "scales": self.scales}
        odd = self.zero_points.shape[1] % 2
        zero_points = np.pad(self.zero_points, ((0, 0), (0, odd)))
        return {
            "values": _join_bytes(self.values),
            "scales": self.scales,
            "zero_points": _join_bytes(zero_points),
        }

    def restore(self) -> NDArray[np.float32]:
        """The numbers, `[R, K x 32]`."""
        steps = self.values.astype(np.float32) - self.zero_points[:, :, None]
        steps *= self.scales[:, :, None]
        return steps.reshape(len(steps), -1)

    def steps(self) -> NDArray[np.float32]:
        """How far neighbouring numbers lie apart, `[R, K x 32]`."""
        return np.maximum(self.scales, _SMALLEST_SCALE).repeat(BLOCK, axis=1)


def _in_eight_bits(blocks: NDArray[np.float32]) -> Blocks:
    """Symmetric, the largest number of a block at the end of the range; nearest values."""
    scales = np.abs(blocks).max(axis=2) / np.float32(_LEVELS)
    values = blocks / np.maximum(scales, _SMALLEST_SCALE)[:, :, None]
    np.rint(values, out=values)
    values += _MIDDLE
    zero_points = np.full(scales.shape, _MIDDLE, np.uint8)
    return Blocks(8, values.astype(np.uint8), scales, zero_points)


def _in_four_bits(blocks: NDArray[np.float32]) -> Blocks:
    """Scales and zero points by search; nearest values."""
    rows, count, _ = blocks.shape
    values, scales, zero_points = fit_grid(blocks.reshape(-1, BLOCK))
    return Blocks(
        4,
        values.reshape(blocks.shape),
        scales.reshape(rows, count),
        zero_points.reshape(rows, count),
    )


def _join_bytes(values: Values) -> Values:
    joined: Values = values[..., 0::2] | (values[..., 1::2] << np.uint8(4))
    return joined


def _split_bytes(joined: Values) -> Values:
    """`[..., n]` -> `[..., 2 x n]`."""
    return np.stack((joined & 0x0F, joined >> 4), axis=-1).reshape(*joined.shape[:-1], -1)
