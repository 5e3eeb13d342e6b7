"""Marian (Junczys-Dowmunt et al. 2018), the translation models of OPUS-MT: BART with sinusoids."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from model.checkpoint import CheckpointError
from model.checkpoints import bart
from model.checkpoints.family import refuse_other_than
from model.config import Positions, TransformerConfig

_ACCEPTED: dict[str, tuple[Any, ...]] = {
    "normalize_embedding": (False,),
    "static_position_embeddings": (True,),
}
TENSORS = replace(
    bart.TENSORS,
    unused=(
        *bart.TENSORS.unused,
        r"(encoder|decoder)\.embed_positions\.weight",  # computed
    ),
)
TWO_VOCABULARIES = replace(
    TENSORS,
    names={
        **TENSORS.names,
        "encoder.embedding.tokens": "encoder.embed_tokens",
        "decoder.embedding.tokens": "decoder.embed_tokens",
    },
    copies={"lm_head.weight": "decoder.embed_tokens.weight"},
)


def configure(values: dict[str, Any], where: str) -> TransformerConfig:
    """Marian's config.json as ours.

    Raises:
        CheckpointError: it lacks a size, or asks for what formerd does not do.
        ConfigError: a size makes no sense.
    """
    refuse_other_than(values, _ACCEPTED, where)
    target = _target_vocabulary(values, where)
    positions = {"positions": Positions.SINUSOIDAL_HALVES}
    return bart.configure_like_bart(values, where, {**positions, "target_vocab_size": target})


def _target_vocabulary(values: dict[str, Any], where: str) -> Any:
    """The size of the target's own vocabulary, 0 where it shares the source's."""
    source = values.get("vocab_size")
    target = values.get("decoder_vocab_size") or source
    if not values.get("share_encoder_decoder_embeddings", True):
        return target
    if target != source:
        raise CheckpointError(
            f"{where}: decoder_vocab_size is {target!r}, and vocab_size is {source!r}; with "
            "share_encoder_decoder_embeddings there is one vocabulary"
        )
    return 0
