"""A target's attention to its source, as ONNX operators, over slots that hold keys and values.

Shapes: `B` batch, `S` sequence, `H` heads, `G` key/value heads, `D` head width, `C` capacity of a
slot in source tokens, `T` the source tokens that a step reads.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Self

import torch
from torch import Tensor
from torch.onnx import ops

from export.graph_attention import attend_in_place
from export.standard_attention import attend_to_cells, cache_cells, step_columns
from model.cache import LayerCache


@dataclass(frozen=True)
class CrossAttention:
    """Attention of one new token a row to its source, by the operator of the decoder's own cache.

    That operator reads as many positions as a row holds, whatever the capacity, but writes a key
    and a value first. It gets the source's own last ones, which lie where it writes them: the slot
    stays the same, bit by bit. A row that asks with one token sees all of its source.

    Attributes:
        last_positions: int32 `[B]`, of the sources' last tokens.
        last_tokens: int64 `[B, 1, G, 2]`, the head and the position of what each row writes.
        total_source_length: int32 `[1]`, the tokens of the longest source.
        scale: what scores are multiplied by; None for 1 / sqrt(D).
        presents: each layer appends its memory as it is afterwards.
    """

    last_positions: Tensor
    last_tokens: Tensor
    total_source_length: Tensor
    scale: float | None = None
    presents: list[LayerCache] = field(default_factory=list, compare=False)

    @classmethod
    def of_step(
        cls,
        source_lengths: Tensor,
        total_source_length: Tensor,
        kv_heads: int,
        scale: float | None,
    ) -> Self:
        """What all layers of one step share.

        Args:
            source_lengths: int32 `[B]`, at least 1 each.
        """
        last_positions = source_lengths - 1
        # By constants alone: what is computed from a shape would be the processor's on CUDA.
        heads = torch.tensor([[head, 0] for head in range(kv_heads)])  # [G, 2]
        positions = last_positions.long()[:, None, None, None] * torch.tensor([0, 1])
        return cls(last_positions, heads + positions, total_source_length, scale)

    def __call__(self, query: Tensor, memory: LayerCache) -> Tensor:
        last_key, last_value = (self._last(half, query.shape[0]) for half in memory)
        mixed, present = attend_in_place(
            (query, last_key, last_value),
            memory,
            (self.last_positions, self.total_source_length),
            scale=self.scale,
        )
        self.presents.append(present)
        return mixed

    def _last(self, half: Tensor, batch: int) -> Tensor:
        """`[B, G, C, D]` -> each source's last token's, `[B, 1, G, D]`."""
        _, kv_heads, _, width = half.shape
        return ops.symbolic(
            "GatherND",
            (half, self.last_tokens),
            {"batch_dims": 1},
            dtype=half.dtype,
            shape=(batch, 1, kv_heads, width),
            version=24,
        )


@dataclass(frozen=True)
class StandardCrossAttention:
    """The same in standard ONNX alone: gather as many tokens as the longest source has, attend.

    As in `StandardAttention`, tokens are read in whole groups, what a row does not hold is read as
    its last token, and masked.

    Attributes:
        cells: int64 `[B, G, T]`, where in the `B x G x C` positions of a slot each key lies.
        mask: bool `[B, 1, 1, T]`, True at the source's tokens.
        scale, presents: as of `CrossAttention`.
    """

    cells: Tensor
    mask: Tensor
    scale: float | None = None
    presents: list[LayerCache] = field(default_factory=list, compare=False)

    @classmethod
    def of_step(
        cls,
        source_lengths: Tensor,
        total_source_length: Tensor,
        memory: LayerCache,
        scale: float | None,
    ) -> Self:
        """What all layers of one step share; `memory` is any layer's."""
        lengths = source_lengths.long()[:, None]  # [B, 1]
        columns = step_columns(memory.key.shape[2], total_source_length)
        cells = cache_cells(memory.key, columns, lengths - 1)
        return cls(cells, (columns < lengths)[:, None, None], scale)

    def __call__(self, query: Tensor, memory: LayerCache) -> Tensor:
        self.presents.append(LayerCache(*map(_same, memory)))
        return attend_to_cells(query.transpose(1, 2), memory, self.cells, self.mask, self.scale)


def _same(half: Tensor) -> Tensor:
    """An output that is an input: no copy where both are bound to one place."""
    return ops.symbolic("Identity", (half,), dtype=half.dtype, shape=half.shape, version=24)
