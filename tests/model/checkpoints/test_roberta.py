"""RoBERTa and XLM-RoBERTa checkpoints: parity with transformers, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from model.checkpoint import CheckpointError
from model.checkpoints import load_checkpoint
from model.checkpoints.roberta import configure
from model.typed_fields import ConfigError
from tests.model.checkpoints.parity import assert_encoder_parity
from tests.model.checkpoints.tiny_references import save, tiny_roberta, tiny_xlm_roberta

FAMILIES = [("roberta", tiny_roberta), ("xlm-roberta", tiny_xlm_roberta)]


@pytest.mark.parametrize(("family", "tiny"), FAMILIES)
def test_tiny_random_states(tmp_path: Path, family: str, tiny: Callable[..., Any]) -> None:
    checkpoint = assert_encoder_parity(tiny(), tmp_path)
    assert (checkpoint.family, checkpoint.pad_id, checkpoint.max_input) == (family, 1, 40)


def test_positions_count_from_another_padding_id(tmp_path: Path) -> None:
    reference = tiny_roberta(pad_token_id=3, max_position_embeddings=44)
    checkpoint = assert_encoder_parity(reference, tmp_path)
    assert (checkpoint.config.position_offset, checkpoint.config.max_positions) == (4, 40)


def test_every_stored_tensor_is_accounted_for(tmp_path: Path) -> None:
    checkpoint = load_checkpoint(save(tiny_roberta(), tmp_path))
    table = "encoder.embedding.positions.table"
    assert checkpoint.tensors[table].shape == (42, 48)
    assert checkpoint.sources[table] == ("embeddings.position_embeddings.weight",)
    used = {name for names in checkpoint.sources.values() for name in names}
    assert used | set(checkpoint.unused) == set(load_file(tmp_path / "model.safetensors"))
    assert set(checkpoint.unused) == {"pooler.dense.bias", "pooler.dense.weight"}


def test_names_of_models_with_a_head(tmp_path: Path) -> None:
    path = save(tiny_xlm_roberta(), tmp_path) / "model.safetensors"
    tensors = load_file(path)
    renamed = {f"roberta.{name}": tensor for name, tensor in tensors.items()}
    save_file(renamed | {"lm_head.dense.bias": torch.zeros(3)}, path)
    checkpoint = load_checkpoint(tmp_path)
    assert "lm_head.dense.bias" in checkpoint.unused
    assert torch.equal(
        checkpoint.tensors["encoder.embedding.norm.bias"], tensors["embeddings.LayerNorm.bias"]
    )


def test_a_classifier_is_no_encoder(tmp_path: Path) -> None:
    path = save(tiny_roberta(), tmp_path) / "model.safetensors"
    save_file(load_file(path) | {"classifier.dense.bias": torch.zeros(3)}, path)
    with pytest.raises(CheckpointError, match=r"unexpected classifier\.dense\.bias"):
        load_checkpoint(tmp_path)


CONFIG = {
    "vocab_size": 30,
    "hidden_size": 8,
    "num_attention_heads": 2,
    "intermediate_size": 9,
    "num_hidden_layers": 1,
    "max_position_embeddings": 7,
}


@pytest.mark.parametrize("pad_id", [None, -1, "1", 0.5])
def test_a_padding_id_from_which_nothing_counts(pad_id: object) -> None:
    with pytest.raises(CheckpointError, match="pad_token_id is"):
        configure(CONFIG | {"pad_token_id": pad_id}, "config.json")


def test_no_positions_are_left() -> None:
    with pytest.raises(ConfigError, match="max_positions is 0"):
        configure(CONFIG | {"pad_token_id": 6}, "config.json")
