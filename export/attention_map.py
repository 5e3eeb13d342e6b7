"""attention: which tokens each token of a text attends to, by eager PyTorch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch import Tensor

from model.checkpoint import Checkpoint
from model.config import Kind, Positions, TransformerConfig
from model.eager_attention import EagerCrossAttention, EagerSelfAttention, causal_mask
from model.positions import rotary_tables
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


@torch.inference_mode()
def attention_map(
    checkpoint: Checkpoint, text: str, target: str | None, layer: int | None, head: int | None
) -> AttentionMap:
    """The attention of one layer, the last where None, and of one head, the mean where None.

    Args:
        target: of an encoder-decoder: shows how its tokens attend to those of `text`. Without it,
            how the tokens of `text` attend to each other.

    Raises:
        AttentionError: the model has no such layer, head or target, or the text is empty or longer
            than the model takes.
    """
    config = checkpoint.config
    if target is not None and config.kind is not Kind.ENCODER_DECODER:
        raise AttentionError(f"--target is for encoder-decoder models; the kind is {config.kind}")
    source_json = checkpoint.tokenizer_json
    columns, ids = _encode(source_json, text, "--text", config)
    model = checkpoint.build()
    if target is None:
        recorded = _encoder(model, ids) if config.has_encoder else _decoder(model, ids)
        return _select(config.kind.value, columns, columns, recorded, layer, head)
    target_json = checkpoint.target_tokenizer_json or source_json
    rows, target_ids = _encode(target_json, target, "--target", config)
    recorded = _cross(model, ids, target_ids)
    return _select("cross-attention", rows, columns, recorded, layer, head)


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


def _encoder(model: Transformer, ids: Tensor) -> list[Tensor]:
    attend, recorded = _recording(model, ids, None)
    model.encoder(ids, _positions(ids), attend)
    return recorded


def _decoder(model: Transformer, ids: Tensor) -> list[Tensor]:
    attend, recorded = _recording(model, ids, causal_mask(_positions(ids), ids.shape[1]))
    model.decoder(ids, _positions(ids), attend)
    return recorded


def _cross(model: Transformer, source: Tensor, target: Tensor) -> list[Tensor]:
    states = model.encoder(source, _positions(source), _recording(model, source, None)[0])
    attend, _ = _recording(model, target, causal_mask(_positions(target), target.shape[1]))
    recorded: list[Tensor] = []
    across = EagerCrossAttention(recorded=recorded)
    memory = model.decoder.remember(states)
    model.decoder(target, _positions(target), attend, memory=memory, attend_memory=across)
    return recorded


def _recording(
    model: Transformer, ids: Tensor, mask: Tensor | None
) -> tuple[EagerSelfAttention, list[Tensor]]:
    recorded: list[Tensor] = []
    return EagerSelfAttention(mask, _rotary(model.config, ids), recorded), recorded


def _rotary(config: TransformerConfig, ids: Tensor) -> tuple[Tensor, Tensor] | None:
    if config.positions is not Positions.ROTARY:
        return None
    cos, sin = rotary_tables(ids.shape[1], config.head_dim, config.rope_theta, config.rope_scaling)
    return cos[None], sin[None]  # [1, S, D / 2]


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
