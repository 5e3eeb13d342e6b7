"""What training lowers: how surprised the model is by the right phones."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor
from torch.nn import functional

from examples.g2p.batches import IGNORED, Batch
from model.eager_attention import (
    EagerCrossAttention,
    EagerSelfAttention,
    causal_mask,
    padding_mask,
)
from model.transformer import Decoder, Encoder, Transformer


def surprise(model: Transformer, batch: Batch, label_smoothing: float = 0.0) -> Tensor:
    """The mean cross-entropy of the labels, in nats a phone.

    Each phone is predicted from the right ones before it (teacher forcing). Attention drops weights
    out where the model is in training mode, as its other parts do by themselves.

    Args:
        label_smoothing: the share of a label's probability that is spread over the vocabulary
            (Szegedy et al. 2016).
    """
    dropout = model.config.dropout if model.training else 0.0

    def attend(stack: Encoder | Decoder, positions: Tensor, mask: Tensor) -> EagerSelfAttention:
        return replace(EagerSelfAttention.of_stack(stack, positions, mask), dropout=dropout)

    letters, phones = _positions(batch.sources), _positions(batch.targets)
    real = padding_mask(batch.source_lengths, letters.shape[1])
    source = model.encoder(batch.sources, letters, attend(model.encoder, letters, real))
    states, _ = model.decoder(
        batch.targets,
        phones,
        attend(model.decoder, phones, causal_mask(phones, phones.shape[1])),
        memory=model.decoder.remember(source),
        attend_memory=EagerCrossAttention(real, dropout=dropout),
    )
    return functional.cross_entropy(
        model.decoder.head(states).float().flatten(0, 1),  # [B * S, vocabulary]
        batch.labels.flatten(),
        ignore_index=IGNORED,
        label_smoothing=label_smoothing,
    )


def _positions(ids: Tensor) -> Tensor:
    return torch.arange(ids.shape[1]).expand_as(ids)
