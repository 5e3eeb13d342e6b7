"""GPT-2 checkpoints: parity with transformers, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from model.checkpoint import CheckpointError
from model.checkpoints import load_checkpoint
from model.checkpoints.gpt2 import configure
from model.generate import generate_greedy
from tests.model.checkpoints.parity import PROMPT, assert_decoder_parity
from tests.model.checkpoints.tiny_references import save, tiny_gpt2
from tests.model.references import reference_greedy

VARIANTS: dict[str, dict[str, Any]] = {
    "tied": {},
    "other sizes": {"tie_word_embeddings": False, "n_inner": 56, "layer_norm_epsilon": 1e-2},
    "other activation": {"activation_function": "relu"},
}


@pytest.mark.parametrize("changes", VARIANTS.values(), ids=VARIANTS.keys())
def test_tiny_random_logits_and_tokens(tmp_path: Path, changes: dict[str, Any]) -> None:
    checkpoint = assert_decoder_parity(tiny_gpt2(**changes), tmp_path)
    assert (checkpoint.family, checkpoint.max_input, checkpoint.eos_ids) == ("gpt2", 128, (1,))


def test_three_projections_come_from_one_tensor(tmp_path: Path) -> None:
    checkpoint = load_checkpoint(save(tiny_gpt2(), tmp_path))
    for part in ("query", "key", "value"):
        for ending in ("weight", "bias"):
            assert checkpoint.sources[f"decoder.blocks.2.attention.{part}.{ending}"] == (
                f"transformer.h.2.attn.c_attn.{ending}",
            )
    stored = set(load_file(tmp_path / "model.safetensors"))
    assert {name for names in checkpoint.sources.values() for name in names} == stored


def test_older_files_hold_the_mask_and_no_prefix(tmp_path: Path) -> None:
    reference = tiny_gpt2()
    path = save(reference, tmp_path) / "model.safetensors"
    tensors = {name.removeprefix("transformer."): t for name, t in load_file(path).items()}
    save_file(tensors | {"h.0.attn.bias": torch.ones(1, 1, 4, 4)}, path)
    checkpoint = load_checkpoint(tmp_path)
    assert checkpoint.unused == ("h.0.attn.bias",)
    tokens = generate_greedy(checkpoint.build(), PROMPT, 20)
    assert tokens == reference_greedy(reference, PROMPT, 20)


@pytest.mark.parametrize("shape", [(48, 145), (48, 4 * 48), (48, 2), (144,), ()])
def test_projections_of_another_shape(tmp_path: Path, shape: tuple[int, ...]) -> None:
    path = save(tiny_gpt2(), tmp_path) / "model.safetensors"
    name = "transformer.h.0.attn.c_attn.weight"
    save_file(load_file(path) | {name: torch.zeros(shape)}, path)
    with pytest.raises(CheckpointError, match=f"{name} has shape"):
        load_checkpoint(tmp_path)


CONFIG = {"vocab_size": 30, "n_embd": 8, "n_head": 2, "n_layer": 1, "n_positions": 7}


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"activation_function": "mish"}, ["activation_function", "mish"]),
        ({"scale_attn_weights": False}, ["scale_attn_weights", "False"]),
        ({"scale_attn_by_inverse_layer_idx": True}, ["scale_attn_by_inverse_layer_idx", "True"]),
        ({"add_cross_attention": True}, ["add_cross_attention", "True"]),
        ({"quantization_config": {"bits": 4}}, ["quantization_config"]),
        ({"n_embd": None, "n_layer": None}, ["lacks n_embd, n_layer"]),
    ],
)
def test_refusals(change: dict[str, Any], named: list[str]) -> None:
    assert configure(CONFIG, "config.json").d_ff == 32
    with pytest.raises(CheckpointError) as refusal:
        configure(CONFIG | change, "config.json")
    for part in ["config.json", *named]:
        assert part in str(refusal.value)
