"""attention: which tokens each token of a text attends to, by eager PyTorch."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch import Tensor

from model.checkpoint import Checkpoint
from model.config import Kind, TransformerConfig
from model.eager_attention import EagerCrossAttention, EagerSelfAttention, causal_mask
from model.generate import remember
from model.transformer import Transformer


class AttentionError(ValueError):
    """A text, layer or head that the model cannot show; the message names the option."""


@dataclass(frozen=True)
class AttentionMap:
    """Attention weights; each row sums to 1.

    Attributes:
        weights: `[rows, columns]`, how much the row's token attends to the column's.
    """

    title: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    weights: NDArray[np.float32]


class AttentionKind(StrEnum):
    """Which of a model's attentions is shown."""

    ENCODER = "encoder"
    DECODER = "decoder"
    CROSS = "cross-attention"


@torch.inference_mode()
def attention_map(
    checkpoint: Checkpoint,
    text: str,
    target: str | None,
    layer: int | None,
    head: int | None,
    kind: AttentionKind | None = None,
) -> AttentionMap:
    """The attention of one layer, the last where None, and of one head, the mean where None.

    Args:
        target: what an encoder-decoder has written; its decoder's attentions need it.
        kind: None stands for the cross-attention of a target, else for that of the text.

    Raises:
        AttentionError: the model has no such attention, layer, head or target, or a text is empty
            or longer than the model takes.
    """
    config = checkpoint.config
    if target is not None and config.kind is not Kind.ENCODER_DECODER:
        raise AttentionError(f"--target is for encoder-decoder models; the kind is {config.kind}")
    chosen = kind or _default_kind(config, target)
    _check_kind(config, chosen, target)
    columns, ids = _encode(checkpoint.tokenizer_json, text, "--text", config)
    model = checkpoint.build()
    recorded: list[Tensor] = []
    if target is None or chosen is AttentionKind.ENCODER:
        rows = columns
        read = _read_source if config.has_encoder else _read_alone
        read(model, ids, recorded)
    elif chosen is AttentionKind.DECODER:
        rows, written = _begun(checkpoint, *_encode_target(checkpoint, target))
        columns = rows
        _read_target(model, ids, written, recorded, [])
    else:  # each row is a token that is written, so what is read is the one before
        rows, written = _encode_target(checkpoint, target)
        _, begun = _begun(checkpoint, rows, written)
        _read_target(model, ids, begun[:, : len(rows)], [], recorded)
    return _select(chosen.value, rows, columns, recorded, layer, head)


def _default_kind(config: TransformerConfig, target: str | None) -> AttentionKind:
    if target is not None:
        return AttentionKind.CROSS
    return AttentionKind.ENCODER if config.has_encoder else AttentionKind.DECODER


def _check_kind(config: TransformerConfig, kind: AttentionKind, target: str | None) -> None:
    there = {
        AttentionKind.ENCODER: config.has_encoder,
        AttentionKind.DECODER: config.has_decoder,
        AttentionKind.CROSS: config.kind is Kind.ENCODER_DECODER,
    }
    if not there[kind]:
        raise AttentionError(f"--kind {kind} is of other models; the kind is {config.kind}")
    if config.kind is Kind.ENCODER_DECODER and kind is not AttentionKind.ENCODER and target is None:
        raise AttentionError(f"--kind {kind} needs --target, what the decoder has written")


def _encode(
    tokenizer_json: bytes, text: str, option: str, config: TransformerConfig
) -> tuple[tuple[str, ...], Tensor]:
    """The tokens as they are spelled in the text, and their ids `[1, S]`."""
    encoding = Tokenizer.from_str(tokenizer_json.decode()).encode(text)
    if not 0 < len(encoding.ids) <= config.max_positions:
        raise AttentionError(
            f"{option} has {len(encoding.ids)} tokens; it must have 1 to {config.max_positions}"
        )
    labels = (
        text[start:end] or token
        for token, (start, end) in zip(encoding.tokens, encoding.offsets, strict=True)
    )
    return tuple(labels), torch.tensor([encoding.ids])


def _encode_target(checkpoint: Checkpoint, target: str) -> tuple[tuple[str, ...], Tensor]:
    tokenizer = checkpoint.target_tokenizer_json or checkpoint.tokenizer_json
    return _encode(tokenizer, target, "--target", checkpoint.config)


def _begun(
    checkpoint: Checkpoint, labels: tuple[str, ...], ids: Tensor
) -> tuple[tuple[str, ...], Tensor]:
    """The tokens with the one that every target begins with, as many as the model takes."""
    start = checkpoint.decoder_start_id
    if start is None:
        return labels, ids
    most = checkpoint.config.max_positions
    begun = torch.cat((torch.tensor([[start]]), ids), dim=1)
    return ("", *labels)[:most], begun[:, :most]


def _read_source(model: Transformer, ids: Tensor, recorded: list[Tensor]) -> None:
    positions = _positions(ids)
    mask = causal_mask(positions, ids.shape[1]) if model.config.causal_encoder else None
    attend = EagerSelfAttention.of_stack(model.encoder, positions, mask, recorded=recorded)
    model.encoder(ids, positions, attend)


def _read_alone(model: Transformer, ids: Tensor, recorded: list[Tensor]) -> None:
    positions = _positions(ids)
    mask = causal_mask(positions, ids.shape[1])
    attend = EagerSelfAttention.of_stack(model.decoder, positions, mask, recorded=recorded)
    model.decoder(ids, positions, attend)


def _read_target(
    model: Transformer,
    source: Tensor,
    target: Tensor,
    recorded: list[Tensor],
    recorded_across: list[Tensor],
) -> None:
    positions = _positions(target)
    mask = causal_mask(positions, target.shape[1])
    attend = EagerSelfAttention.of_stack(model.decoder, positions, mask, recorded=recorded)
    across = EagerCrossAttention(recorded=recorded_across, scaled=model.config.scaled_attention)
    memory = remember(model, source, torch.tensor([source.shape[1]])).memory
    model.decoder(target, positions, attend, memory=memory, attend_memory=across)


def _positions(ids: Tensor) -> Tensor:
    return torch.arange(ids.shape[1])[None]


def _select(
    what: str,
    rows: tuple[str, ...],
    columns: tuple[str, ...],
    recorded: list[Tensor],
    layer: int | None,
    head: int | None,
) -> AttentionMap:
    layers, heads = len(recorded), recorded[0].shape[1]
    for option, number, count in (("--layer", layer, layers), ("--head", head, heads)):
        if number is not None and not 0 <= number < count:
            raise AttentionError(f"{option} {number}; the model has 0 to {count - 1}")
    chosen = layers - 1 if layer is None else layer
    weights = recorded[chosen][0]  # [H, rows, columns]
    picked = weights.mean(dim=0) if head is None else weights[head]
    which = "mean of all heads" if head is None else f"head {head}"
    return AttentionMap(f"{what}, layer {chosen}, {which}", rows, columns, picked.numpy())
