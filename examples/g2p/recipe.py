"""How the model is built and trained: every number, so that a seed gives one model."""

from __future__ import annotations

import math
from dataclasses import dataclass

from examples.g2p.vocabulary import phone_tokenizer, spelling_tokenizer
from model.config import Activation, Kind, Positions, TransformerConfig

MAX_POSITIONS = 64  # letters or phones of one text; the dictionary's longest word has 28


@dataclass(frozen=True)
class Recipe:
    """Sizes and settings of one training.

    Attributes:
        words_per_batch: a word with two pronunciations counts twice.
        peak_rate: of AdamW (Loshchilov and Hutter 2019), reached after `warm_up`, a share of all
            steps, and lowered to 0 along a cosine.
        clip: the largest norm of a step's gradient.
        average_decay: of the moving average of the weights, which is what is kept.
    """

    seed: int = 1
    epochs: int = 24
    d_model: int = 192
    heads: int = 4
    d_ff: int = 512
    encoder_layers: int = 4
    decoder_layers: int = 2
    dropout: float = 0.1
    label_smoothing: float = 0.1
    words_per_batch: int = 256
    peak_rate: float = 2.5e-3
    warm_up: float = 0.05
    betas: tuple[float, float] = (0.9, 0.98)
    weight_decay: float = 0.01
    clip: float = 1.0
    average_decay: float = 0.999

    def transformer(self) -> TransformerConfig:
        """Pre-norm and rotary: how a letter sounds depends on its neighbours, not on its index."""
        return TransformerConfig(
            kind=Kind.ENCODER_DECODER,
            vocab_size=spelling_tokenizer().get_vocab_size(),
            target_vocab_size=phone_tokenizer().get_vocab_size(),
            d_model=self.d_model,
            heads=self.heads,
            d_ff=self.d_ff,
            max_positions=MAX_POSITIONS,
            encoder_layers=self.encoder_layers,
            decoder_layers=self.decoder_layers,
            positions=Positions.ROTARY,
            activation=Activation.RELU,
            embedding_scale=math.sqrt(self.d_model),
            dropout=self.dropout,
        )

    def rate(self, done: float) -> float:
        """The learning rate when a share `done` of all steps, from 0 to 1, lies behind."""
        if done < self.warm_up:
            return self.peak_rate * done / self.warm_up
        return (
            self.peak_rate
            * 0.5
            * (1 + math.cos(math.pi * (done - self.warm_up) / (1 - self.warm_up)))
        )
