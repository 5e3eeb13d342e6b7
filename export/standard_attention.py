"""A decoder's attention in standard ONNX alone, for runtimes without GroupQueryAttention.

Shapes: `B` batch, `S` sequence, `H` heads, `G` key/value heads, `D` head width, `C` cache capacity,
`T` the positions that a step reads.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor
from torch.onnx import ops

from export.graph_attention import leading, scale_attribute, take
from model.cache import LayerCache
from model.positions import RelativePositionBias

_GROUP = 64  # positions are read in whole groups of so many


@dataclass(frozen=True)
class StandardAttention:
    """Causal self-attention over a static cache: scatter the new tokens, gather, attend.

    The operator's cost grows with the keys that it is given, so a step reads as many positions as
    its longest row holds, and not the whole capacity; in whole groups, so that a row's sums have
    the same order alone and batched, with zeros at the end. What a row does not hold is read as its
    last token and masked: the operator masks by adding to the scores, so a NaN that another text
    left in the cache would reach this one.

    Attributes:
        positions: int64 `[B, S]`, of the new tokens.
        cells: int64 `[B, G, T]`, where in the `B x G x C` positions of a cache each key lies.
        mask: bool `[B, 1, S, T]`, True where a token may see a key; or the bias of the scores
            `[B, H, S, T]`, minus infinity where it may not.
        rotary: cosines and sines of all positions, `[positions, D / 2]`; None where the model has
            no rotary positions.
        scale: what scores are multiplied by; None for 1 / sqrt(D).
    """

    positions: Tensor
    cells: Tensor
    mask: Tensor
    rotary: tuple[Tensor, Tensor] | None
    scale: float | None

    @classmethod
    def of_step(
        cls,
        positions: Tensor,
        total_sequence_length: Tensor,
        past: LayerCache,
        rotary: tuple[Tensor, Tensor] | None,
        relative_bias: RelativePositionBias | None,
        scale: float | None,
    ) -> Self:
        """What all layers of one step share.

        Args:
            total_sequence_length: int32 `[1]`, the most positions that a row holds after it.
            past: the cache of any layer, `[B, G, C, D]` each.
            relative_bias: the stack's own; None without one.
        """
        columns = step_columns(past.key.shape[2], total_sequence_length)
        mask = (columns <= positions[..., None])[:, None]
        if relative_bias is not None:
            mask = relative_bias(positions, columns).masked_fill(~mask, -torch.inf)
        cells = cache_cells(past.key, columns, positions[:, -1:])
        return cls(positions, cells, mask, rotary, scale)

    def __call__(
        self, query: Tensor, key: Tensor, value: Tensor, past: LayerCache | None
    ) -> tuple[Tensor, LayerCache]:
        if past is None:
            raise ValueError("the graph of a decoder always has a cache")
        query, key, value = (x.transpose(1, 2) for x in (query, key, value))  # [B, H or G, S, D]
        if self.rotary is not None:
            query, key = self._rotate(query), self._rotate(key)
        present = LayerCache(self._write(past.key, key), self._write(past.value, value))
        return attend_to_cells(query, present, self.cells, self.mask, self.scale), present

    def _rotate(self, states: Tensor) -> Tensor:
        assert self.rotary is not None
        return ops.symbolic(
            "RotaryEmbedding",
            (states, *self.rotary, self.positions),
            dtype=states.dtype,
            shape=states.shape,
            version=24,
        )

    def _write(self, cache: Tensor, new: Tensor) -> Tensor:
        """The cache `[B, G, C, D]` with the new tokens' `[B, G, S, D]` at their positions."""
        return ops.symbolic(
            "TensorScatter",
            (cache, new, self.positions[:, 0]),
            {"axis": 2},
            dtype=cache.dtype,
            shape=cache.shape,
            version=24,
        )


def step_columns(capacity: int, total: Tensor) -> Tensor:
    """The positions that a step reads, int64 `[T]`: `total [1]`, and those to a whole group."""
    end = (total.long() + (_GROUP - 1)).bitwise_and(-_GROUP)
    return leading(torch.arange(capacity), end)


def cache_cells(half: Tensor, columns: Tensor, last: Tensor) -> Tensor:
    """Where in the `B x G x C` positions of a cache the columns of each row lie, `[B, G, T]`.

    Args:
        half: `[B, G, C, D]`.
        columns: int64 `[T]`.
        last: int64 `[B, 1]`, the last position that each row holds; what is beyond is read there.
    """
    batch, kv_heads, capacity, _ = half.shape
    heads = torch.arange(batch)[:, None] * kv_heads + torch.arange(kv_heads)  # [B, G]
    return heads[..., None] * capacity + columns.minimum(last)[:, None]


def attend_to_cells(
    query: Tensor, cache: LayerCache, cells: Tensor, mask: Tensor, scale: float | None
) -> Tensor:
    """Gathers keys and values, and attends from `query [B, H, S, D]`: `[B, S, H, D]`.

    Args:
        cells: as `cache_cells` gives them.
        mask: of the operator, `[B, 1 or H, S, T]`.
    """
    keys, values = (take(half.flatten(0, 2), cells) for half in cache)  # [B, G, T, D]
    mixed = ops.symbolic(
        "Attention",
        (query, keys, values, mask),
        {**scale_attribute(scale)},
        dtype=query.dtype,
        shape=query.shape,
        version=24,
    )
    return mixed.transpose(1, 2)
