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

from export.graph_attention import take
from model.cache import LayerCache

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
        mask: bool `[B, 1, S, T]`, True where a token may see a key.
        rotary: cosines and sines of all positions, `[positions, D / 2]`; None where the model has
            no rotary positions.
    """

    positions: Tensor
    cells: Tensor
    mask: Tensor
    rotary: tuple[Tensor, Tensor] | None

    @classmethod
    def of_step(
        cls,
        positions: Tensor,
        total_sequence_length: Tensor,
        past: LayerCache,
        rotary: tuple[Tensor, Tensor] | None,
    ) -> Self:
        """What all layers of one step share.

        Args:
            total_sequence_length: int32 `[1]`, the most positions that a row holds after it.
            past: the cache of any layer, `[B, G, C, D]` each.
        """
        batch, kv_heads, capacity, _ = past.key.shape
        columns = _leading(torch.arange(capacity), total_sequence_length)  # [T]
        heads = torch.arange(batch)[:, None] * kv_heads + torch.arange(kv_heads)  # [B, G]
        held = columns.minimum(positions[:, -1:])  # [B, T]
        return cls(
            positions=positions,
            cells=heads[..., None] * capacity + held[:, None],
            mask=(columns <= positions[..., None])[:, None],
            rotary=rotary,
        )

    def __call__(
        self, query: Tensor, key: Tensor, value: Tensor, past: LayerCache | None
    ) -> tuple[Tensor, LayerCache]:
        if past is None:
            raise ValueError("the graph of a decoder always has a cache")
        query, key, value = (x.transpose(1, 2) for x in (query, key, value))  # [B, H or G, S, D]
        if self.rotary is not None:
            query, key = self._rotate(query), self._rotate(key)
        present = LayerCache(self._write(past.key, key), self._write(past.value, value))
        keys, values = (take(half.flatten(0, 2), self.cells) for half in present)  # [B, G, T, D]
        mixed = ops.symbolic(
            "Attention",
            (query, keys, values, self.mask),
            dtype=query.dtype,
            shape=query.shape,
            version=24,
        )
        return mixed.transpose(1, 2), present

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


def _leading(columns: Tensor, count: Tensor) -> Tensor:
    """The first `count [1]` of `columns [C]`, and those that complete their group.

    The tracer takes the result for as long as `columns`: how many there are is known when the
    graph runs.
    """
    end = (count.long() + (_GROUP - 1)).bitwise_and(-_GROUP)
    return ops.symbolic(
        "Slice",
        (columns, torch.zeros(1, dtype=torch.int64), end),
        dtype=columns.dtype,
        shape=columns.shape,
        version=24,
    )
