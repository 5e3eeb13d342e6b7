"""Attention as ONNX operators: the strategies that a graph hands to the model.

Shapes: `B` batch, `S` sequence, `L` longest text, `N` packed tokens, `H` heads, `G` key/value
heads, `D` head width, `C` cache capacity.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.onnx import ops

from model.cache import LayerCache
from model.config import Positions, TransformerConfig
from model.positions import rotary_tables, rotate


@dataclass(frozen=True)
class PackedAttention:
    """Self-attention of packed texts: each token sees the tokens of its own text.

    Tokens are gathered into a padded view for the operator and gathered back; nothing else in the
    graph sees padding. The operator masks the padded keys by adding to their scores, so a padded
    cell must not hold another text's token: a NaN there would reach this one.

    Attributes:
        pad_map: int64 `[B, L]`, the token of each cell; a padded cell holds one of its own text.
        unpad_map: int64 `[N]`, the cell of each token.
        lengths: int64 `[B]`.
        rotary: cosines and sines `[N, D / 2]`; None without rotary positions.
        mask: bool `[L, L]`, True where a token may see another; None where every one may.
    """

    pad_map: Tensor
    unpad_map: Tensor
    lengths: Tensor
    rotary: tuple[Tensor, Tensor] | None
    mask: Tensor | None = None

    def __call__(
        self, query: Tensor, key: Tensor, value: Tensor, past: LayerCache | None
    ) -> tuple[Tensor, None]:
        if self.rotary is not None:
            query, key = rotate(query, *self.rotary), rotate(key, *self.rotary)
        heads, kv_heads = query.shape[-2], key.shape[-2]
        query, key, value = (take(x.flatten(-2), self.pad_map) for x in (query, key, value))
        mixed = ops.symbolic(
            "Attention",
            (query, key, value, self.mask, None, None, self.lengths),  # [B, L, HD] each
            {"q_num_heads": heads, "kv_num_heads": kv_heads},
            dtype=query.dtype,
            shape=query.shape,
            version=24,
        )
        mixed = take(mixed.flatten(0, 1), self.unpad_map)  # [N, HD]
        return split_heads(mixed, heads), None


@dataclass(frozen=True)
class CachedAttention:
    """Causal self-attention over a static cache, which the operator updates in place.

    Attributes:
        last_positions: int32 `[B]`, the position of each row's last new token.
        total_sequence_length: int32 `[1]`, the most positions that a row holds after this step.
        rotary: cosines and sines of all positions, `[positions, D / 2]`; None where the model has
            no rotary positions. The operator derives each token's position from the lengths.
    """

    last_positions: Tensor
    total_sequence_length: Tensor
    rotary: tuple[Tensor, Tensor] | None

    def __call__(
        self, query: Tensor, key: Tensor, value: Tensor, past: LayerCache | None
    ) -> tuple[Tensor, LayerCache]:
        if past is None:
            raise ValueError("the graph of a decoder always has a cache")
        heads, kv_heads = query.shape[-2], key.shape[-2]
        query, key, value = (x.flatten(-2) for x in (query, key, value))  # [B, S, HD]
        mixed, present_key, present_value = ops.symbolic_multi_out(
            "com.microsoft::GroupQueryAttention",
            (
                *(query, key, value, past.key, past.value),
                *(self.last_positions, self.total_sequence_length),
                *(self.rotary or ()),
            ),
            {
                "num_heads": heads,
                "kv_num_heads": kv_heads,
                "do_rotary": int(self.rotary is not None),
            },
            dtypes=(query.dtype, past.key.dtype, past.value.dtype),
            shapes=(query.shape, past.key.shape, past.value.shape),
            version=1,
        )
        return split_heads(mixed, heads), LayerCache(present_key, present_value)


class RotaryTables(nn.Module):
    """Cosines and sines of all positions, `[positions, D / 2]` each, as constants of a graph."""

    cos: Tensor
    sin: Tensor

    def __init__(self, config: TransformerConfig, dtype: torch.dtype) -> None:
        super().__init__()
        cos, sin = rotary_tables(
            config.max_positions, config.head_dim, config.rope_theta, config.rope_scaling
        )
        self.register_buffer("cos", cos.to(dtype))
        self.register_buffer("sin", sin.to(dtype))

    @classmethod
    def from_config(cls, config: TransformerConfig, dtype: torch.dtype) -> RotaryTables | None:
        """None where the model does not rotate."""
        return cls(config, dtype) if config.positions is Positions.ROTARY else None


def take(states: Tensor, rows: Tensor) -> Tensor:
    """Rows of `states [R, width]`, for `rows` int64 of any shape: one Gather in the graph."""
    return functional.embedding(rows, states)


def split_heads(mixed: Tensor, heads: int) -> Tensor:
    """`[..., HD]` -> `[..., H, D]`."""
    return mixed.view(*mixed.shape[:-1], heads, mixed.shape[-1] // heads)
