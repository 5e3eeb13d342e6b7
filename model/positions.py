"""Where a token stands: sinusoidal, learned and rotary positions."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from model.config import Positions, TransformerConfig


def sinusoidal_table(length: int, d_model: int) -> Tensor:
    """The sinusoidal position table, `[length, d_model]` fp32.

    Even columns hold sines and odd ones cosines, with wavelengths from 2 pi to 10 000 x 2 pi
    (Vaswani et al. 2017, section 3.5).
    """
    angles = _angles(length, d_model, theta=10_000.0)  # [length, d_model / 2]
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(-2).float()


def rotary_tables(length: int, head_dim: int, theta: float) -> tuple[Tensor, Tensor]:
    """Cosines and sines of the rotary angles, each `[length, head_dim / 2]` fp32.

    Su et al. 2021, with the dimensions paired as (i, i + head_dim / 2).
    """
    angles = _angles(length, head_dim, theta)
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


def _angles(length: int, width: int, theta: float) -> Tensor:
    """`[length, width / 2]` fp64: position x theta^(-2i / width)."""
    exponents = torch.arange(0, width, 2, dtype=torch.float64) / width
    return torch.arange(length, dtype=torch.float64)[:, None] * theta**-exponents
