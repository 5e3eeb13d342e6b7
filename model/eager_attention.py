"""Attention in eager PyTorch, on padded batches `[B, S]`: the reference for other strategies."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Self

import torch
from torch import Tensor

from model.attention import scaled_dot_product_attention
from model.cache import LayerCache
from model.config import Positions, TransformerConfig
from model.positions import rotary_tables, rotate
from model.transformer import Decoder, Encoder


def padding_mask(lengths: Tensor, longest: int) -> Tensor:
    """`lengths [B]` -> `[B, 1, 1, longest]` bool: True at the real keys."""
    columns = torch.arange(longest, device=lengths.device)
    return (columns < lengths[:, None])[:, None, None]


def causal_mask(positions: Tensor, keys: int) -> Tensor:
    """`positions [B, S]` of the queries -> `[B, 1, S, keys]` bool: key j is seen from j onwards."""
    columns = torch.arange(keys, device=positions.device)
    return (columns <= positions[..., None])[:, None]


@dataclass(frozen=True)
class EagerSelfAttention:
    """Self-attention; keys are appended to the cache where there is one.

    Attributes:
        mask: bool, broadcastable to `[B, H, S, K]`; None where every token sees every other.
        rotary: cosines and sines `[B, S, D / 2]` of the new tokens; None without rotary positions.
        recorded: where not None, each layer appends its weights `[B, H, S, K]`.
        dropout: the part of the attention weights that is dropped; whoever trains sets it.
        bias: of the scores, `[B, H, S, K]`; None without relative positions.
        scaled: whether scores are divided by sqrt(D).
    """

    mask: Tensor | None = None
    rotary: tuple[Tensor, Tensor] | None = None
    recorded: list[Tensor] | None = field(default=None, compare=False)
    dropout: float = 0.0
    bias: Tensor | None = None
    scaled: bool = True

    @classmethod
    def of_stack(
        cls,
        stack: Encoder | Decoder,
        positions: Tensor,
        mask: Tensor | None,
        *,
        keys: int | None = None,
        recorded: list[Tensor] | None = None,
    ) -> Self:
        """How a stack attends from the new tokens at `positions [B, S]` to all before and them.

        `keys` is how many there are with those in the cache; None without a cache.
        """
        config, bias = stack.config, None
        if stack.relative_bias is not None:
            every = torch.arange(positions.shape[1] if keys is None else keys)
            bias = stack.relative_bias(positions, every)
        return cls(
            mask,
            rotary=_rotary(config, positions),
            recorded=recorded,
            bias=bias,
            scaled=config.scaled_attention,
        )

    def __call__(
        self, query: Tensor, key: Tensor, value: Tensor, past: LayerCache | None
    ) -> tuple[Tensor, LayerCache]:
        if self.rotary is not None:
            query, key = rotate(query, *self.rotary), rotate(key, *self.rotary)
        present = LayerCache(key.transpose(1, 2), value.transpose(1, 2))  # [B, G, S, D]
        if past is not None:
            present = LayerCache(
                torch.cat((past.key, present.key), dim=2),
                torch.cat((past.value, present.value), dim=2),
            )
        query, key, value = _heads(query, present)
        mixed, weights = scaled_dot_product_attention(
            query, key, value, self.mask, self.dropout, bias=self.bias, scaled=self.scaled
        )
        if self.recorded is not None:
            self.recorded.append(weights)
        return mixed.transpose(1, 2), present


@dataclass(frozen=True)
class EagerCrossAttention:
    """Cross-attention from `[B, S]` target tokens to the keys and values of a source.

    Attributes:
        mask: bool `[B, 1, 1, K]`; None where every source token is real.
        recorded: where not None, each layer appends its weights `[B, H, S, K]`.
        dropout: the part of the attention weights that is dropped; whoever trains sets it.
        scaled: whether scores are divided by sqrt(D).
    """

    mask: Tensor | None = None
    recorded: list[Tensor] | None = field(default=None, compare=False)
    dropout: float = 0.0
    scaled: bool = True

    def __call__(self, query: Tensor, memory: LayerCache) -> Tensor:
        query, key, value = _heads(query, memory)
        mixed, weights = scaled_dot_product_attention(
            query, key, value, self.mask, self.dropout, scaled=self.scaled
        )
        if self.recorded is not None:
            self.recorded.append(weights)
        return mixed.transpose(1, 2)


def _heads(query: Tensor, cache: LayerCache) -> tuple[Tensor, Tensor, Tensor]:
    """`query [B, S, H, D]`, the cache `[B, G, K, D]` -> all three by head, `[B, H, S or K, D]`."""
    group = query.shape[2] // cache.key.shape[1]
    key = cache.key.repeat_interleave(group, dim=1)
    return query.transpose(1, 2), key, cache.value.repeat_interleave(group, dim=1)


def _rotary(config: TransformerConfig, positions: Tensor) -> tuple[Tensor, Tensor] | None:
    """Cosines and sines `[B, S, D / 2]` of the positions `[B, S]`, for models that turn."""
    if config.positions is not Positions.ROTARY:
        return None
    length = int(positions.max()) + 1
    cos, sin = rotary_tables(length, config.head_dim, config.rope_theta, config.rope_scaling)
    return cos[positions], sin[positions]
