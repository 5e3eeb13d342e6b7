"""Attention in eager PyTorch, on padded batches `[B, S]`: the reference for other strategies."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from model.attention import scaled_dot_product_attention
from model.cache import LayerCache
from model.positions import rotate


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
    """

    mask: Tensor | None = None
    rotary: tuple[Tensor, Tensor] | None = None
    recorded: list[Tensor] | None = field(default=None, compare=False)
    dropout: float = 0.0

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
        mixed, weights = _attend_heads(query, present, self.mask, self.dropout)
        if self.recorded is not None:
            self.recorded.append(weights)
        return mixed, present


@dataclass(frozen=True)
class EagerCrossAttention:
    """Cross-attention from `[B, S]` target tokens to the keys and values of a source.

    Attributes:
        mask: bool `[B, 1, 1, K]`; None where every source token is real.
        recorded: where not None, each layer appends its weights `[B, H, S, K]`.
        dropout: the part of the attention weights that is dropped; whoever trains sets it.
    """

    mask: Tensor | None = None
    recorded: list[Tensor] | None = field(default=None, compare=False)
    dropout: float = 0.0

    def __call__(self, query: Tensor, memory: LayerCache) -> Tensor:
        mixed, weights = _attend_heads(query, memory, self.mask, self.dropout)
        if self.recorded is not None:
            self.recorded.append(weights)
        return mixed


def _attend_heads(
    query: Tensor, cache: LayerCache, mask: Tensor | None, dropout: float
) -> tuple[Tensor, Tensor]:
    """`query [B, S, H, D]` over the cache `[B, G, K, D]` -> `[B, S, H, D]`, `[B, H, S, K]`."""
    group = query.shape[2] // cache.key.shape[1]
    key = cache.key.repeat_interleave(group, dim=1)  # [B, H, K, D]
    value = cache.value.repeat_interleave(group, dim=1)
    mixed, weights = scaled_dot_product_attention(query.transpose(1, 2), key, value, mask, dropout)
    return mixed.transpose(1, 2), weights
