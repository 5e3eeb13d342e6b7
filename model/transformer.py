"""The transformer: embeddings, an encoder stack, a decoder stack and an output head.

    encoder           tokens -> embed -> encoder blocks -> states
    decoder           tokens -> embed -> decoder blocks -> states -> head -> logits
    encoder-decoder   source -> encoder -> memory;  target + memory -> decoder -> head -> logits

Attention is computed by the strategy that is handed in; the layout of the tokens is its business,
so the same modules serve padded batches and packed tokens.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

from torch import Tensor, nn

from model.attention import Attend, AttendMemory, MultiHeadAttention
from model.block import DecoderBlock, EncoderBlock
from model.cache import Cache, LayerCache
from model.config import Kind, TransformerConfig
from model.feed_forward import make_norm
from model.positions import PositionEmbedding, RelativePositionBias


class Embedding(nn.Module):
    """Token embedding, plus position and segment, normalised where the configuration says so."""

    def __init__(self, config: TransformerConfig, vocab_size: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocab_size, config.d_model)
        self.scale = config.embedding_scale
        self.positions = PositionEmbedding.from_config(config)
        self.types = (
            nn.Embedding(config.token_types, config.d_model) if config.token_types else None
        )
        self.norm = make_norm(config) if config.embedding_norm else None
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, input_ids: Tensor, positions: Tensor) -> Tensor:
        """`input_ids` and `positions`, int64 of one shape `[...]` -> `[..., d_model]`."""
        hidden = self.tokens(input_ids)
        if self.scale != 1.0:
            hidden = hidden * self.scale
        if self.types is not None:
            hidden = hidden + self.types.weight[0]
        if self.positions is not None:
            hidden = hidden + self.positions(positions)
        if self.norm is not None:
            hidden = self.norm(hidden)
        embedded: Tensor = self.dropout(hidden)
        return embedded


class Encoder(nn.Module):
    """The encoder stack.

    Attributes:
        relative_bias: what a strategy adds to the scores of every layer; None without one.
    """

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = Embedding(config, config.vocab_size)
        self.relative_bias = RelativePositionBias.from_config(config, both_sides=True)
        self.blocks = nn.ModuleList(EncoderBlock(config) for _ in range(config.encoder_layers))
        self.norm = make_norm(config) if config.final_norm else None

    def forward(self, input_ids: Tensor, positions: Tensor, attend: Attend) -> Tensor:
        """`input_ids`, `positions` int64 `[...]` -> states `[..., d_model]`."""
        hidden: Tensor = self.embedding(input_ids, positions)
        for block in self.blocks:
            hidden = block(hidden, attend)
        return hidden if self.norm is None else self.norm(hidden)


class Decoder(nn.Module):
    """The decoder stack with its output head.

    Attributes:
        relative_bias: what a strategy adds to the scores of every self-attention; None without one.
    """

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = Embedding(config, config.decoder_vocab_size)
        self.relative_bias = RelativePositionBias.from_config(config, both_sides=False)
        self.blocks = nn.ModuleList(DecoderBlock(config) for _ in range(config.decoder_layers))
        self.norm = make_norm(config) if config.final_norm else None
        self.head = nn.Linear(config.d_model, config.decoder_vocab_size, bias=config.head_bias)
        if config.tied_head:
            self.head.weight = self.embedding.tokens.weight

    def forward(
        self,
        input_ids: Tensor,
        positions: Tensor,
        attend: Attend,
        past: Cache | None = None,
        memory: Cache | None = None,
        attend_memory: AttendMemory | None = None,
    ) -> tuple[Tensor, tuple[LayerCache | None, ...]]:
        """`input_ids`, `positions` int64 `[B, S]` -> states `[B, S, d_model]` and the new cache.

        The states are those that the head reads, scaled where the configuration says so.
        `memory` and `attend_memory` are the source's keys and values and how to attend to them;
        both or neither.
        """
        hidden: Tensor = self.embedding(input_ids, positions)
        presents = []
        for layer, block in enumerate(self.blocks):
            hidden, present = block(
                hidden,
                attend,
                past[layer] if past is not None else None,
                memory[layer] if memory is not None else None,
                attend_memory,
            )
            presents.append(present)
        states = hidden if self.norm is None else self.norm(hidden)
        if self.config.head_scale != 1.0:
            states = states * self.config.head_scale
        return states, tuple(presents)

    def project_memory(self, source: Tensor) -> tuple[tuple[Tensor, Tensor], ...]:
        """Each layer's keys and values of source tokens `[..., d_model]`: `[..., G, D]` each."""
        return tuple(layer.project_memory(source) for layer in self._cross_attentions())

    def remember(self, source: Tensor) -> Cache:
        """Each layer's memory of a source's states `[B, K, d_model]`, as `cross` reads it."""
        return tuple(layer.remember(source) for layer in self._cross_attentions())

    def _cross_attentions(self) -> Iterator[MultiHeadAttention]:
        return (cast("DecoderBlock", block).cross_attention for block in self.blocks)


class Transformer(nn.Module):
    """One transformer with the stacks of its kind."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.config = config
        if config.has_encoder:
            self.encoder = Encoder(config)
        if config.has_decoder:
            self.decoder = Decoder(config)
        if config.kind is Kind.ENCODER_DECODER and not config.target_vocab_size:
            self.decoder.embedding.tokens.weight = self.encoder.embedding.tokens.weight
            if config.tied_head:
                self.decoder.head.weight = self.encoder.embedding.tokens.weight
