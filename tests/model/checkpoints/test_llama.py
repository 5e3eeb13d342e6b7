"""Llama checkpoints: parity with transformers, special ids, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from model.checkpoint import CheckpointError
from model.checkpoints import load_checkpoint
from model.checkpoints.llama import configure
from model.generate import generate_greedy, logits
from tests.model.checkpoints.parity import assert_decoder_parity
from tests.model.checkpoints.tiny_references import save, tiny_llama
from tests.model.references import reference_greedy

ROPE = {"rope_theta": 100.0}
VARIANTS: dict[str, dict[str, Any]] = {
    "tied": {},
    "biased": {"tie_word_embeddings": False, "attention_bias": True, "mlp_bias": True},
    "wide heads": {"head_dim": 24, "num_key_value_heads": 6},
    "other base": {"rope_parameters": {"rope_type": "default", "rope_theta": 500_000.0}},
    "linear scaling": {"rope_parameters": ROPE | {"rope_type": "linear", "factor": 4.0}},
    "llama3 scaling": {
        "rope_parameters": ROPE
        | {
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 64,
        }
    },
    "other norm": {"rms_norm_eps": 1e-2, "hidden_act": "gelu"},
}


@pytest.mark.parametrize("changes", VARIANTS.values(), ids=VARIANTS.keys())
def test_tiny_random_logits_and_tokens(tmp_path: Path, changes: dict[str, Any]) -> None:
    assert_decoder_parity(tiny_llama(**changes), tmp_path)


def test_shards(tmp_path: Path) -> None:
    reference = tiny_llama()
    save(reference, tmp_path, max_shard_size="40KB")
    shards = sorted(tmp_path.glob("model-*.safetensors"))
    assert len(shards) > 1
    checkpoint = load_checkpoint(tmp_path)
    assert torch.equal(
        checkpoint.tensors["decoder.norm.weight"], reference.state_dict()["model.norm.weight"]
    )
    shards[0].unlink()
    with pytest.raises(CheckpointError, match=f"missing: {shards[0].name}"):
        load_checkpoint(tmp_path)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_upcast(tmp_path: Path, dtype: torch.dtype) -> None:
    reference = tiny_llama().to(dtype)
    checkpoint = load_checkpoint(save(reference, tmp_path))
    assert {tensor.dtype for tensor in checkpoint.tensors.values()} == {torch.float32}
    prompt = [70, 8, 9]
    assert generate_greedy(checkpoint.build(), prompt, 64) == reference_greedy(
        reference.float(), prompt, 64
    )


def test_special_ids_and_limits(tmp_path: Path) -> None:
    checkpoint = load_checkpoint(save(tiny_llama(), tmp_path))
    assert (checkpoint.family, checkpoint.max_input) == ("llama", 128)
    assert (checkpoint.pad_id, checkpoint.bos_id, checkpoint.eos_ids) == (0, 2, (1, 3))
    assert checkpoint.unused == ()


def test_a_model_without_its_head_has_names_without_a_prefix(tmp_path: Path) -> None:
    reference = tiny_llama()
    save(reference.model, tmp_path)
    checkpoint = load_checkpoint(tmp_path)
    assert checkpoint.sources["decoder.norm.weight"] == ("norm.weight",)
    ids = torch.tensor([[70, 8, 9]])
    with torch.no_grad():
        expected = reference(ids).logits
    torch.testing.assert_close(logits(checkpoint.build(), ids)[0], expected, atol=1e-4, rtol=0)


CONFIG = {
    "vocab_size": 30,
    "hidden_size": 8,
    "num_attention_heads": 2,
    "intermediate_size": 9,
    "num_hidden_layers": 1,
    "max_position_embeddings": 7,
}


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"partial_rotary_factor": 0.5}, ["partial_rotary_factor", "0.5"]),
        ({"hidden_act": "mish"}, ["hidden_act", "mish"]),
        ({"quantization_config": {"bits": 4}}, ["quantization_config"]),
        ({"hidden_size": None, "vocab_size": None}, ["lacks vocab_size, hidden_size"]),
    ],
)
def test_refusals(change: dict[str, Any], named: list[str]) -> None:
    with pytest.raises(CheckpointError) as refusal:
        configure(CONFIG | change, "config.json")
    for part in ["config.json", *named]:
        assert part in str(refusal.value)


def test_a_setting_that_makes_no_sense_names_the_directory(tmp_path: Path) -> None:
    directory = save(tiny_llama(), tmp_path)
    config = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps(config | {"num_key_value_heads": 4}))
    with pytest.raises(CheckpointError, match=r"heads 6 is not a multiple of kv_heads 4"):
        load_checkpoint(directory)
