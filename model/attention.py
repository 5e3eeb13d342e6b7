"""Attention: the textbook function, the multi-head module, and the strategy between them.

Shapes: `B` batch, `S` sequence, `K` keys, `H` heads, `G` key/value heads, `D` head width. `...` are
the axes of the tokens: `[B, S]` in eager PyTorch, one packed axis in a padding-free graph.
"""

from __future__ import annotations

import math
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional

from model.cache import LayerCache
from model.config import TransformerConfig


class Attend(Protocol):
    """How attention is computed, for every layer of one forward pass.

    The model projects; the strategy knows masks, positions, caches and the layout of the tokens,
    and from the configuration whether scores are scaled and the stack has a bias of distances.
    """

    def __call__(
        self, query: Tensor, key: Tensor, value: Tensor, past: LayerCache | None
    ) -> tuple[Tensor, LayerCache | None]:
        """Attends from each token to the tokens that it may see.

        Args:
            query: `[..., H, D]`, before any rotation.
            key, value: `[..., G, D]`, of the new tokens alone.
            past: the layer's cache, or None without one.

        Returns:
            The mixed values `[..., H, D]`, and the cache with the new tokens in it.
        """


class AttendMemory(Protocol):
    """How cross-attention is computed: from a target's tokens to a source's keys and values.

    The memory is whatever `MultiHeadAttention.remember` or `project_memory` made of the source, in
    the layout that the strategy knows. It never changes while a target grows.
    """

    def __call__(self, query: Tensor, memory: LayerCache) -> Tensor:
        """`query [..., H, D]`, `memory` as `[B, G, K, D]` each -> `[..., H, D]`."""


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None = None,
    dropout: float = 0.0,
    *,
    bias: Tensor | None = None,
    scaled: bool = True,
) -> tuple[Tensor, Tensor]:
    """softmax(Q K^T / sqrt(d_k)) V (Vaswani et al. 2017, equation 1).

    Args:
        query: `[..., S, D]`.
        key, value: `[..., K, D]`.
        mask: bool, broadcastable to `[..., S, K]`; True where a query may see a key.
        dropout: the part of the weights that is dropped; for training only.
        bias: added to the scores, broadcastable to `[..., S, K]`.
        scaled: whether to divide by sqrt(d_k).

    Returns:
        The mixed values `[..., S, D]`, and the weights `[..., S, K]` before dropout: each row sums
        to 1.
    """
    scores = query @ key.transpose(-2, -1)
    if scaled:
        scores = scores / math.sqrt(query.shape[-1])
    if bias is not None:
        scores = scores + bias
    if mask is not None:
        scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    weights = scores.softmax(dim=-1)
    return functional.dropout(weights, dropout, training=dropout > 0) @ value, weights


class MultiHeadAttention(nn.Module):
    """Multi-head attention: self, causal, cross or grouped-query, by the arguments.

    Grouped-query attention (Ainslie et al. 2023) is `kv_heads` below `heads`.
    """

    def __init__(
        self,
        d_model: int,
        heads: int,
        *,
        kv_heads: int | None = None,
        head_dim: int | None = None,
        bias: bool = True,
        output_bias: bool = True,
    ) -> None:
        super().__init__()
        self.heads = heads
        self.kv_heads = kv_heads or heads
        self.head_dim = head_dim or d_model // heads
        self.query = nn.Linear(d_model, self.heads * self.head_dim, bias=bias)
        self.key = nn.Linear(d_model, self.kv_heads * self.head_dim, bias=bias)
        self.value = nn.Linear(d_model, self.kv_heads * self.head_dim, bias=bias)
        self.output = nn.Linear(self.heads * self.head_dim, d_model, bias=output_bias)

    @classmethod
    def from_config(cls, config: TransformerConfig) -> MultiHeadAttention:
        return cls(
            config.d_model,
            config.heads,
            kv_heads=config.kv_heads,
            head_dim=config.head_dim,
            bias=config.attention_bias,
            output_bias=config.output_bias,
        )

    def forward(
        self, hidden: Tensor, attend: Attend, past: LayerCache | None = None
    ) -> tuple[Tensor, LayerCache | None]:
        """Self-attention: `hidden [..., d_model]` -> the same shape, and the layer's new cache."""
        query = self._split(self.query(hidden), self.heads)
        key = self._split(self.key(hidden), self.kv_heads)
        value = self._split(self.value(hidden), self.kv_heads)
        mixed, present = attend(query, key, value, past)
        return self.output(mixed.flatten(-2)), present

    def cross(self, hidden: Tensor, memory: LayerCache, attend: AttendMemory) -> Tensor:
        """Cross-attention: `hidden [..., d_model]` of the target, `memory` of its source."""
        query = self._split(self.query(hidden), self.heads)
        mixed: Tensor = self.output(attend(query, memory).flatten(-2))
        return mixed

    def project_memory(self, source: Tensor) -> tuple[Tensor, Tensor]:
        """The keys and values of a source's tokens `[..., d_model]`: `[..., G, D]` each.

        Once for each source; where the tokens lie on one axis, nothing is projected for padding.
        """
        key = self._split(self.key(source), self.kv_heads)
        return key, self._split(self.value(source), self.kv_heads)

    def remember(self, source: Tensor) -> LayerCache:
        """The memory that `cross` reads, of sources `[B, K, d_model]`: `[B, G, K, D]` each."""
        key, value = self.project_memory(source)
        return LayerCache(key.transpose(1, 2), value.transpose(1, 2))

    def _split(self, states: Tensor, heads: int) -> Tensor:
        return states.view(*states.shape[:-1], heads, self.head_dim)  # [..., heads, D]
