"""The transformer: embeddings, an encoder stack, a decoder stack and an output head.

    encoder           tokens -> embed -> encoder blocks -> states
    decoder           tokens -> embed -> decoder blocks -> states -> head -> logits
    encoder-decoder   source -> encoder -> memory;  target + memory -> decoder -> head -> logits

Attention is computed by the strategy that is handed in; the layout of the tokens is its business,
so the same modules serve padded batches and packed tokens.
"""

from __future__ import annotations

from typing import cast

from torch import Tensor, nn

from model.attention import Attend, AttendMemory
from model.block import DecoderBlock, EncoderBlock
from model.cache import Cache, LayerCache
from model.config import Kind, Positions, TransformerConfig
from model.feed_forward import make_norm
from model.positions import PositionEmbedding


class Embedding(nn.Module):
    """Token embedding, plus position and segment, normalised where the configuration says so."""

    def __init__(self, config: TransformerConfig, vocab_size: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocab_size, config.d_model)
        self.scale = config.embedding_scale
        adds_positions = config.positions in (Positions.LEARNED, Positions.SINUSOIDAL)
        self.positions = PositionEmbedding(config) if adds_positions else None
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
    """The encoder stack."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.embedding = Embedding(config, config.vocab_size)
        self.blocks = nn.ModuleList(EncoderBlock(config) for _ in range(config.encoder_layers))
        self.norm = make_norm(config) if config.final_norm else None

    def forward(self, input_ids: Tensor, positions: Tensor, attend: Attend) -> Tensor:
        """`input_ids`, `positions` int64 `[...]` -> states `[..., d_model]`."""
        hidden: Tensor = self.embedding(input_ids, positions)
        for block in self.blocks:
            hidden = block(hidden, attend)
        return hidden if self.norm is None else self.norm(hidden)


class Decoder(nn.Module):
    """The decoder stack with its output head."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.embedding = Embedding(config, config.decoder_vocab_size)
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
        return states, tuple(presents)

    def remember(self, source: Tensor) -> Cache:
        """The cross-attention keys and values of a source's states `[B, K, d_model]`, per layer."""
        blocks = (cast("DecoderBlock", block) for block in self.blocks)
        return tuple(block.cross_attention.remember(source) for block in blocks)


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
