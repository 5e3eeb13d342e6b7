"""RoBERTa (Liu et al. 2019) and XLM-RoBERTa (Conneau et al. 2019): BERT with shifted positions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from model.checkpoint import CheckpointError
from model.checkpoints import bert
from model.config import TransformerConfig

TENSORS = replace(
    bert.TENSORS,
    unused=(
        r"embeddings\.(position_ids|token_type_ids)",
        r"pooler\.dense\.(weight|bias)",
        r"lm_head\..*",  # the head of pre-training
    ),
    prefix="roberta.",
)


def configure(values: dict[str, Any], where: str) -> TransformerConfig:
    """RoBERTa's config.json as ours.

    Positions count from the padding id + 1, so the first rows of the table are never read.

    Raises:
        CheckpointError: it lacks a size, or asks for what formerd does not do.
        ConfigError: a size makes no sense.
    """
    config = bert.configure(values, where)
    pad_id = values.get("pad_token_id", 1)
    if not isinstance(pad_id, int) or pad_id < 0:
        raise CheckpointError(f"{where}: pad_token_id is {pad_id!r}; positions count from it")
    offset = pad_id + 1
    return replace(config, position_offset=offset, max_positions=config.max_positions - offset)
