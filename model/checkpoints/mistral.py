"""Mistral (Jiang et al. 2023): llama with a sliding window."""

from __future__ import annotations

from typing import Any

from model.checkpoint import CheckpointError
from model.checkpoints import llama
from model.config import TransformerConfig


def configure(values: dict[str, Any], where: str) -> TransformerConfig:
    """Mistral's config.json as ours.

    Raises:
        CheckpointError: it lacks a size, or asks for what formerd does not do.
        ConfigError: a size makes no sense.
    """
    config = llama.configure(values, where)
    refuse_short_window(values.get("sliding_window"), config, where)
    return config


def refuse_short_window(window: Any, config: TransformerConfig, where: str) -> None:
    """Raises `CheckpointError` where some token could not see all those before it.

    `window` counts the tokens that one sees, itself among them; None for all.
    """
    if window is None or (isinstance(window, int) and window >= config.max_positions):
        return
    raise CheckpointError(
        f"{where}: sliding_window is {window!r}, below max_position_embeddings "
        f"{config.max_positions}, which is not supported; texts that fit the window need none: "
        f"set max_position_embeddings to {window!r} for those"
    )
