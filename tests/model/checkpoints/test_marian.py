"""Marian checkpoints: parity with transformers, one vocabulary or two, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from model.checkpoint import CheckpointError
from model.checkpoints import load_checkpoint
from model.checkpoints.marian import configure
from model.config import Positions
from tests.checkpoints import VOCABULARY, byte_tokenizer
from tests.model.checkpoints.parity import assert_encoder_decoder_parity
from tests.model.checkpoints.test_bart import CONFIG
from tests.model.checkpoints.tiny_references import save, tiny_marian

VARIANTS: dict[str, dict[str, Any]] = {
    "as published": {"bad_words_ids": [[0]], "max_length": 100},
    "unscaled": {"scale_embedding": False, "activation_function": "relu"},
}


@pytest.mark.parametrize("changes", VARIANTS.values(), ids=VARIANTS.keys())
def test_states_logits_and_tokens(tmp_path: Path, changes: dict[str, Any]) -> None:
    reference = tiny_marian()
    reference.generation_config.update(**changes)
    checkpoint = assert_encoder_decoder_parity(reference, tmp_path, penalties=(0.5, 1.0, 2.0))
    assert checkpoint.config.positions is Positions.SINUSOIDAL_HALVES
    assert (checkpoint.family, checkpoint.decoder_start_id) == ("marian", 0)
    assert checkpoint.generation.get("max_new_tokens") == (99 if "max_length" in changes else None)


def save_two_vocabularies(directory: Path) -> Any:
    """A Marian whose target has 9 more ids than its source, with a tokenizer for each."""
    changes = {"decoder_vocab_size": VOCABULARY + 9, "share_encoder_decoder_embeddings": False}
    reference = tiny_marian(**changes)
    target = byte_tokenizer()
    target.add_tokens([f"<new{number}>" for number in range(9)])
    directory.mkdir(exist_ok=True)
    target.save(str(directory / "target_tokenizer.json"))
    save(reference, directory)
    return reference


def test_two_vocabularies(tmp_path: Path) -> None:
    checkpoint = assert_encoder_decoder_parity(save_two_vocabularies(tmp_path), tmp_path)
    assert checkpoint.config.target_vocab_size == VOCABULARY + 9
    assert checkpoint.target_tokenizer_json is not None
    assert b"<new8>" in checkpoint.target_tokenizer_json
    assert b"<new8>" not in checkpoint.tokenizer_json


def test_two_vocabularies_and_one_tokenizer(tmp_path: Path) -> None:
    save_two_vocabularies(tmp_path)
    (tmp_path / "target_tokenizer.json").unlink()
    message = rf"own, of {VOCABULARY + 9} entries, but there is no target_tokenizer\.json"
    with pytest.raises(CheckpointError, match=message):
        load_checkpoint(tmp_path)


def test_stored_sinusoids_are_computed_instead(tmp_path: Path) -> None:
    path = save(tiny_marian(), tmp_path) / "model.safetensors"
    name = "model.encoder.embed_positions.weight"
    save_file(load_file(path) | {name: torch.ones(128, 48)}, path)
    assert load_checkpoint(tmp_path).unused == (name,)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"normalize_embedding": True}, ["normalize_embedding", "True"]),
        ({"static_position_embeddings": False}, ["static_position_embeddings", "False"]),
        ({"decoder_vocab_size": 31}, ["decoder_vocab_size is 31", "vocab_size is 30"]),
        ({"decoder_ffn_dim": 16}, ["encoder_ffn_dim is 12", "decoder_ffn_dim is 16"]),
    ],
)
def test_refusals(change: dict[str, Any], named: list[str]) -> None:
    assert configure(CONFIG, "config.json").target_vocab_size == 0
    with pytest.raises(CheckpointError) as refusal:
        configure(CONFIG | change, "config.json")
    for part in ["config.json", *named]:
        assert part in str(refusal.value)
