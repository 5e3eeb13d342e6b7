"""The encoder block and the decoder block.

pre-norm:   x -> norm -> sublayer -> (+ x)          post-norm:   x -> sublayer -> (+ x) -> norm
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from model.attention import Attend, AttendMemory, MultiHeadAttention
from model.cache import LayerCache
from model.config import Kind, NormPlacement, TransformerConfig
from model.feed_forward import FeedForward, make_norm


class Residual(nn.Module):
    """A sublayer's residual connection, with its normalisation before or after."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.norm = make_norm(config)
        self.dropout = nn.Dropout(config.dropout)
        self.before = config.norm_placement is NormPlacement.PRE

    def forward(self, hidden: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        mixed: Tensor
        if self.before:
            mixed = hidden + self.dropout(sublayer(self.norm(hidden)))
        else:
            mixed = self.norm(hidden + self.dropout(sublayer(hidden)))
        return mixed


class EncoderBlock(nn.Module):
    """Self-attention, then feed-forward."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.attention = MultiHeadAttention.from_config(config)
        self.attention_residual = Residual(config)
        self.feed_forward = FeedForward(config)
        self.feed_forward_residual = Residual(config)

    def forward(self, hidden: Tensor, attend: Attend) -> Tensor:
        """`hidden [..., d_model]` -> the same shape."""
        hidden = self.attention_residual(hidden, lambda x: self.attention(x, attend)[0])
        mixed: Tensor = self.feed_forward_residual(hidden, self.feed_forward)
        return mixed


class DecoderBlock(nn.Module):
    """Causal self-attention, cross-attention where there is a source, then feed-forward."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.attention = MultiHeadAttention.from_config(config)
        self.attention_residual = Residual(config)
        if config.kind is Kind.ENCODER_DECODER:
            self.cross_attention = MultiHeadAttention.from_config(config)
            self.cross_attention_residual = Residual(config)
        self.feed_forward = FeedForward(config)
        self.feed_forward_residual = Residual(config)

    def forward(
        self,
        hidden: Tensor,
        attend: Attend,
        past: LayerCache | None,
        memory: LayerCache | None = None,
        attend_memory: AttendMemory | None = None,
    ) -> tuple[Tensor, LayerCache | None]:
        """`hidden [..., d_model]` -> the same shape, and the layer's cache with the new tokens."""
        present: LayerCache | None = None

        def self_attention(states: Tensor) -> Tensor:
            nonlocal present
            mixed: Tensor
            mixed, present = self.attention(states, attend, past)
            return mixed

        hidden = self.attention_residual(hidden, self_attention)
        if memory is not None and attend_memory is not None:
            hidden = self.cross_attention_residual(
                hidden, lambda x: self.cross_attention.cross(x, memory, attend_memory)
            )
        states: Tensor = self.feed_forward_residual(hidden, self.feed_forward)
        return states, present
