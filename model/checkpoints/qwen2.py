"""Qwen2 (Yang et al. 2024): llama with biases on query, key and value."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from model.checkpoints import llama
from model.checkpoints.mistral import refuse_short_window
from model.config import TransformerConfig


def configure(values: dict[str, Any], where: str) -> TransformerConfig:
    """Qwen2's config.json as ours.

    Raises:
        CheckpointError: it lacks a size, or asks for what formerd does not do.
        ConfigError: a size makes no sense.
    """
    config = llama.configure(values, where)
    layer_types = values.get("layer_types") or ()
    if values.get("use_sliding_window") or "sliding_attention" in layer_types:
        refuse_short_window(values.get("sliding_window"), config, where)
    return replace(config, attention_bias=True, output_bias=False)
