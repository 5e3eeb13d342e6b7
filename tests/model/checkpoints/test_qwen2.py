"""Qwen2 checkpoints: parity with transformers, and windows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from model.checkpoint import CheckpointError
from model.checkpoints.qwen2 import configure
from tests.model.checkpoints.parity import assert_decoder_parity
from tests.model.checkpoints.tiny_references import tiny_qwen2

VARIANTS: dict[str, dict[str, Any]] = {
    "tied": {},
    "own head": {"tie_word_embeddings": False, "rope_parameters": {"rope_theta": 1e6}},
    "long window": {"use_sliding_window": True, "sliding_window": 128, "max_window_layers": 1},
}


@pytest.mark.parametrize("changes", VARIANTS.values(), ids=VARIANTS.keys())
def test_tiny_random_logits_and_tokens(tmp_path: Path, changes: dict[str, Any]) -> None:
    checkpoint = assert_decoder_parity(tiny_qwen2(**changes), tmp_path)
    assert checkpoint.family == "qwen2"
    biased = [name for name in checkpoint.tensors if name.endswith(".attention.query.bias")]
    assert len(biased) == 3
    assert "decoder.blocks.0.attention.output.bias" not in checkpoint.tensors


@pytest.mark.parametrize(
    "change",
    [
        {"use_sliding_window": True, "sliding_window": 64},
        {"layer_types": ["full_attention", "sliding_attention"], "sliding_window": 64},
    ],
)
def test_a_shorter_window_is_refused(change: dict[str, Any]) -> None:
    values = tiny_qwen2().config.to_dict()
    with pytest.raises(CheckpointError, match="sliding_window is 64"):
        configure(values | change, "config.json")


def test_a_window_that_is_not_used_does_not_matter() -> None:
    values = tiny_qwen2().config.to_dict() | {"use_sliding_window": False, "sliding_window": 64}
    assert configure(values, "config.json").max_positions == 128
