"""The feed-forward network of a block, and its normalisations."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from torch import Tensor, nn
from torch.nn import functional

from model.config import Activation, Norm, TransformerConfig

ACTIVATIONS: dict[Activation, Callable[[Tensor], Tensor]] = {
    Activation.GELU: functional.gelu,
    Activation.GELU_TANH: partial(functional.gelu, approximate="tanh"),
    Activation.RELU: functional.relu,
    Activation.SILU: functional.silu,
}


class FeedForward(nn.Module):
    """down(activation(up(x))), or down(activation(gate(x)) * up(x)) where gated (Shazeer 2020)."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.activation = ACTIVATIONS[config.activation]
        self.gate = (
            nn.Linear(config.d_model, config.d_ff, bias=config.ff_bias) if config.gated else None
        )
        self.up = nn.Linear(config.d_model, config.d_ff, bias=config.ff_bias)
        self.down = nn.Linear(config.d_ff, config.d_model, bias=config.ff_bias)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, hidden: Tensor) -> Tensor:
        """`[..., d_model]` -> `[..., d_model]`, each token by itself."""
        up = self.up(hidden)
        inner = (
            self.activation(up) if self.gate is None else self.activation(self.gate(hidden)) * up
        )
        mixed: Tensor = self.down(self.dropout(inner))
        return mixed


def make_norm(config: TransformerConfig) -> nn.LayerNorm | nn.RMSNorm:
    """The normalisation that the configuration asks for, over the last axis."""
    if config.norm is Norm.RMS:
        return nn.RMSNorm(config.d_model, eps=config.norm_eps)
    return nn.LayerNorm(config.d_model, eps=config.norm_eps)
