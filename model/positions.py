"""Where a token stands: sinusoidal, learned, rotary and relative positions."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from model.config import Positions, RopeScaling, RopeScalingKind, TransformerConfig


def sinusoidal_table(length: int, d_model: int, *, halves: bool = False) -> Tensor:
    """The sinusoidal position table, `[length, d_model]` fp32.

    Even columns hold sines and odd ones cosines, with wavelengths from 2 pi to 10 000 x 2 pi
    (Vaswani et al. 2017, section 3.5); with `halves`, the first half of the columns holds the sines
    and the second the cosines, as Marian has it.
    """
    angles = _angles(length, _frequencies(d_model, theta=10_000.0))  # [length, d_model / 2]
    if halves:
        return torch.cat((angles.sin(), angles.cos()), dim=-1).float()
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(-2).float()


def computed_table(config: TransformerConfig) -> Tensor | None:
    """The position table that the configuration alone says, None where there is no such."""
    if config.positions not in (Positions.SINUSOIDAL, Positions.SINUSOIDAL_HALVES):
        return None
    halves = config.positions is Positions.SINUSOIDAL_HALVES
    return sinusoidal_table(config.max_positions, config.d_model, halves=halves)


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
    """The vector of a position, added to the token's."""

    table: Tensor

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.offset = config.position_offset
        rows = config.max_positions + config.position_offset
        if config.positions is Positions.LEARNED:
            self.table = nn.Parameter(torch.randn(rows, config.d_model) * 0.02)
        else:
            self.register_buffer("table", computed_table(config), persistent=False)

    @classmethod
    def from_config(cls, config: TransformerConfig) -> PositionEmbedding | None:
        """None where positions are not added to the tokens' vectors."""
        added = (Positions.LEARNED, Positions.SINUSOIDAL, Positions.SINUSOIDAL_HALVES)
        return cls(config) if config.positions in added else None

    def forward(self, positions: Tensor) -> Tensor:
        """`positions` int64 of any shape, counted from 0 within each text -> `[..., d_model]`."""
        return nn.functional.embedding(positions + self.offset, self.table)


class RelativePositionBias(nn.Module):
    """A bias of the attention scores for each head and distance (Raffel et al. 2020, section 2.1).

    Distances share a learned bias by buckets; one bias serves every layer of a stack. An encoder
    tells before from after; a decoder sees nothing after.
    """

    buckets: Tensor

    def __init__(self, config: TransformerConfig, *, both_sides: bool) -> None:
        super().__init__()
        self.longest = config.relative_max_distance
        self.table = nn.Parameter(torch.randn(config.relative_buckets, config.heads) * 0.02)
        # Looked up, not computed from logarithms where the model runs: those may round differently.
        distances = torch.arange(-self.longest, self.longest + 1)
        buckets = distance_buckets(distances, config.relative_buckets, self.longest, both_sides)
        self.register_buffer("buckets", buckets, persistent=False)

    @classmethod
    def from_config(
        cls, config: TransformerConfig, *, both_sides: bool
    ) -> RelativePositionBias | None:
        """None where the model has other positions."""
        if config.positions is not Positions.RELATIVE:
            return None
        return cls(config, both_sides=both_sides)

    def forward(self, queries: Tensor, keys: Tensor) -> Tensor:
        """Positions `[..., S]` and `[..., K]`, int64 -> biases of the scores, `[..., H, S, K]`.

        A packed encoder needs it once for a batch: `queries` and `keys` from 0 to the longest text.
        A decoder needs it for each row: the positions of its new tokens, and from 0 to the end.
        """
        distances = keys.unsqueeze(-2) - queries.unsqueeze(-1)  # [..., S, K]
        rows = distances.clamp(-self.longest, self.longest) + self.longest
        biases = nn.functional.embedding(self.buckets, self.table)  # [distances, H]
        return nn.functional.embedding(rows, biases).movedim(-1, -3)


def distance_buckets(distances: Tensor, buckets: int, longest: int, both_sides: bool) -> Tensor:
    """The bucket of each distance from a query to a key, int64 of the same shape.

    Half of the buckets are for one distance each; the others grow as the logarithm up to `longest`.
    With `both_sides`, keys after the query have buckets of their own; without, they share the one
    of distance 0.
    """
    first = torch.zeros_like(distances)
    if both_sides:
        buckets //= 2
        first = (distances > 0) * buckets
        distances = distances.abs()
    else:
        distances = -distances.clamp(max=0)
    exact = buckets // 2
    # In fp32, like the checkpoints were trained: at the borders of buckets rounding decides.
    growth = torch.log(distances.clamp(min=exact).float() / exact) / math.log(longest / exact)
    shared = exact + (growth * (buckets - exact)).long()
    return first + torch.where(distances < exact, distances, shared.clamp(max=buckets - 1))


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
