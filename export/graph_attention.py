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
        mask: bool `[L, L]`, True where a token may see another, or a bias of the scores
            `[1, H, L, L]`; None where every one may, and none is preferred.
        scale: what scores are multiplied by; None for 1 / sqrt(D).
    """

    pad_map: Tensor
    unpad_map: Tensor
    lengths: Tensor
    rotary: tuple[Tensor, Tensor] | None
    mask: Tensor | None = None
    scale: float | None = None

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
            {"q_num_heads": heads, "kv_num_heads": kv_heads, **scale_attribute(self.scale)},
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
        bias: of the scores, `[B, H, S, total_sequence_length]`; None without one.
        scale: what scores are multiplied by; None for 1 / sqrt(D).
    """

    last_positions: Tensor
    total_sequence_length: Tensor
    rotary: tuple[Tensor, Tensor] | None
    bias: Tensor | None = None
    scale: float | None = None

    def __call__(
        self, query: Tensor, key: Tensor, value: Tensor, past: LayerCache | None
    ) -> tuple[Tensor, LayerCache]:
        if past is None:
            raise ValueError("the graph of a decoder always has a cache")
        return attend_in_place(
            (query, key, value),
            past,
            (self.last_positions, self.total_sequence_length),
            rotary=self.rotary,
            bias=self.bias,
            scale=self.scale,
        )


def attend_in_place(
    new: tuple[Tensor, Tensor, Tensor],
    past: LayerCache,
    lengths: tuple[Tensor, Tensor],
    *,
    rotary: tuple[Tensor, Tensor] | None = None,
    bias: Tensor | None = None,
    scale: float | None = None,
) -> tuple[Tensor, LayerCache]:
    """GroupQueryAttention: writes new keys and values to a static cache, and attends to it.

    Args:
        new: query `[B, S, H, D]`, key and value `[B, S, G, D]`.
        lengths: int32 `[B]`, the position of each row's last new token, and int32 `[1]`, the most
            positions that a row holds after this step.
        rotary, bias, scale: as of `CachedAttention`.

    Returns:
        The mixed values `[B, S, H, D]`, and the cache with the new tokens in it.
    """
    heads, kv_heads = new[0].shape[-2], new[1].shape[-2]
    query, key, value = (x.flatten(-2) for x in new)  # [B, S, HD]
    cos, sin = rotary or (None, None)
    mixed, present_key, present_value = ops.symbolic_multi_out(
        "com.microsoft::GroupQueryAttention",
        (query, key, value, past.key, past.value, *lengths, cos, sin, None, bias),
        {
            "num_heads": heads,
            "kv_num_heads": kv_heads,
            "do_rotary": int(rotary is not None),
            **scale_attribute(scale),
        },
        dtypes=(query.dtype, past.key.dtype, past.value.dtype),
        shapes=(query.shape, past.key.shape, past.value.shape),
        version=1,
    )
    return split_heads(mixed, heads), LayerCache(present_key, present_value)


def scale_attribute(scale: float | None) -> dict[str, float]:
    """The attribute of an attention operator; without one it divides scores by sqrt(D)."""
    return {} if scale is None else {"scale": scale}


def scale_of(config: TransformerConfig) -> float | None:
    """What scores are multiplied by; None for 1 / sqrt(D)."""
    return None if config.scaled_attention else 1.0


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


def leading(columns: Tensor, end: Tensor) -> Tensor:
    """The first `end [1]`, int64, of `columns [C, ...]`, or all where there are fewer.

    The tracer takes the result for as long as `columns`: how many there are is known when the
    graph runs.
    """
    return ops.symbolic(
        "Slice",
        (columns, torch.tensor([0]), end),
        dtype=columns.dtype,
        shape=columns.shape,
        version=24,
    )


def split_heads(mixed: Tensor, heads: int) -> Tensor:
    """`[..., HD]` -> `[..., H, D]`."""
    return mixed.view(*mixed.shape[:-1], heads, mixed.shape[-1] // heads)
