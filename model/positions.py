"""Where a token stands: sinusoidal, learned and rotary positions."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from model.config import Positions, RopeScaling, RopeScalingKind, TransformerConfig


def sinusoidal_table(length: int, d_model: int) -> Tensor:
    """The sinusoidal position table, `[length, d_model]` fp32.

    Even columns hold sines and odd ones cosines, with wavelengths from 2 pi to 10 000 x 2 pi
    (Vaswani et al. 2017, section 3.5).
    """
    angles = _angles(length, _frequencies(d_model, theta=10_000.0))  # [length, d_model / 2]
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(-2).float()


def rotary_tables(
    length: int, head_dim: int, theta: float, scaling: RopeScaling | None = None
) -> tuple[Tensor, Tensor]:
    """Cosines and sines of the rotary angles, each `[length, head_dim / 2]` fp32.

    Su et al. 2021, with the dimensions paired as (i, i + head_dim / 2).
    """
    frequencies = _frequencies(head_dim, theta)
    if scaling is not None:
        frequencies = _slow_down(frequencies, scaling)
    angles = _angles(length, frequencies)
    return angles.cos().float(), angles.sin().float()


def rotate(states: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turns each pair of dimensions by its token's angles.

    Args:
        states: `[..., H, D]`.
        cos, sin: `[..., D / 2]`, one row a token.
    """
    first, second = states.chunk(2, dim=-1)
    cos, sin = cos.unsqueeze(-2), sin.unsqueeze(-2)  # the same for every head
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


class PositionEmbedding(nn.Module):
    """The vector of a position, added to the token's; none for rotary or no positions."""

    table: Tensor

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.offset = config.position_offset
        rows = config.max_positions + config.position_offset
        if config.positions is Positions.LEARNED:
            self.table = nn.Parameter(torch.randn(rows, config.d_model) * 0.02)
        else:
            self.register_buffer("table", sinusoidal_table(rows, config.d_model), persistent=False)

    def forward(self, positions: Tensor) -> Tensor:
        """`positions` int64 of any shape, counted from 0 within each text -> `[..., d_model]`."""
        return nn.functional.embedding(positions + self.offset, self.table)


def _frequencies(width: int, theta: float) -> Tensor:
    """`[width / 2]` fp64, in radians a position: theta^(-2i / width)."""
    exponents = torch.arange(0, width, 2, dtype=torch.float64) / width
    return theta**-exponents


def _slow_down(frequencies: Tensor, scaling: RopeScaling) -> Tensor:
    if scaling.kind is RopeScalingKind.LINEAR:
        return frequencies / scaling.factor
    low, high = scaling.low_frequency_factor, scaling.high_frequency_factor
    turns = scaling.original_positions * frequencies / (2 * math.pi)
    kept = ((turns - low) / (high - low)).clamp(0.0, 1.0)
    return frequencies * (kept + (1.0 - kept) / scaling.factor)


def _angles(length: int, frequencies: Tensor) -> Tensor:
    """`[length, width / 2]` fp64."""
    return torch.arange(length, dtype=torch.float64)[:, None] * frequencies
