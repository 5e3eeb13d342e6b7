"""Mistral checkpoints: parity with transformers where the window is long enough."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from model.checkpoint import CheckpointError
from model.checkpoints.mistral import configure
from tests.model.checkpoints.parity import assert_decoder_parity
from tests.model.checkpoints.tiny_references import tiny_mistral

VARIANTS: dict[str, dict[str, Any]] = {
    "window as long as the positions": {},
    "no window": {"sliding_window": None, "tie_word_embeddings": False},
    "wide heads": {"head_dim": 24},
}


@pytest.mark.parametrize("changes", VARIANTS.values(), ids=VARIANTS.keys())
def test_tiny_random_logits_and_tokens(tmp_path: Path, changes: dict[str, Any]) -> None:
    checkpoint = assert_decoder_parity(tiny_mistral(**changes), tmp_path)
    assert (checkpoint.family, checkpoint.eos_ids) == ("mistral", (1, 3))


@pytest.mark.parametrize("window", [127, 0, True, "128", 4096.0])
def test_a_shorter_window_is_refused(window: object) -> None:
    values = tiny_mistral().config.to_dict() | {"sliding_window": window}
    with pytest.raises(CheckpointError, match=r"sliding_window is .* max_position_embeddings 128"):
        configure(values, "config.json")
