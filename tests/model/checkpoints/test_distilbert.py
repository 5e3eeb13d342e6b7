"""DistilBERT checkpoints: parity with transformers, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from model.checkpoint import CheckpointError
from model.checkpoints import load_checkpoint
from model.checkpoints.distilbert import configure
from tests.model.checkpoints.parity import assert_encoder_parity
from tests.model.checkpoints.tiny_references import save, tiny_distilbert


@pytest.mark.parametrize("activation", ["gelu", "relu"])
@pytest.mark.parametrize("sinusoidal", [True, False])
def test_tiny_random_states(tmp_path: Path, activation: str, sinusoidal: bool) -> None:
    reference = tiny_distilbert(activation=activation, sinusoidal_pos_embds=sinusoidal)
    checkpoint = assert_encoder_parity(reference, tmp_path)
    assert (checkpoint.family, checkpoint.max_input, checkpoint.unused) == ("distilbert", 40, ())


def test_names_of_models_with_a_head(tmp_path: Path) -> None:
    path = save(tiny_distilbert(), tmp_path) / "model.safetensors"
    renamed = {f"distilbert.{name}": tensor for name, tensor in load_file(path).items()}
    save_file(renamed | {"vocab_projector.bias": torch.zeros(3)}, path)
    checkpoint = load_checkpoint(tmp_path)
    assert checkpoint.unused == ("vocab_projector.bias",)
    used = {name for names in checkpoint.sources.values() for name in names}
    assert used == set(renamed)


CONFIG = {
    "vocab_size": 30,
    "dim": 8,
    "n_heads": 2,
    "hidden_dim": 9,
    "n_layers": 1,
    "max_position_embeddings": 7,
}


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"activation": "mish"}, ["activation", "mish", "gelu"]),
        ({"quantization_config": {"bits": 4}}, ["quantization_config"]),
        ({"dim": None}, ["lacks dim"]),
    ],
)
def test_refusals(change: dict[str, Any], named: list[str]) -> None:
    with pytest.raises(CheckpointError) as refusal:
        configure(CONFIG | change, "config.json")
    for part in ["config.json", *named]:
        assert part in str(refusal.value)
