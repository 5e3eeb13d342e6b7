"""BERT checkpoints: parity with transformers and sentence-transformers, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer
from tokenizers import Tokenizer

from model.checkpoint import Checkpoint, CheckpointError
from model.checkpoints import load_checkpoint
from model.checkpoints.bert import configure
from model.generate import embed, encode
from tests.model.checkpoints.parity import (
    LENGTHS,
    assert_encoder_parity,
    assert_same_states,
    reference_states,
    tiny_ids,
)
from tests.model.checkpoints.tiny_references import save, tiny_bert
from tests.model.references import minilm_directory, minilm_reference

TEXTS = [
    "cat",
    "A daemon answers while others sleep.",
    "Positions tell a model in which order words came; without them, a sentence is a bag. " * 3,
    "naïve café — 東京 🎉",
]


@pytest.mark.parametrize("activation", ["gelu", "gelu_new", "relu", "silu"])
def test_tiny_random_states(tmp_path: Path, activation: str) -> None:
    assert_encoder_parity(tiny_bert(hidden_act=activation), tmp_path)


def test_real_states(minilm: Checkpoint) -> None:
    ids = torch.randint(1000, 30_000, (3, 200), generator=torch.Generator().manual_seed(0))
    lengths = torch.tensor([200, 3, 77])
    states = encode(minilm.build(), ids, lengths)
    assert_same_states(states, reference_states(minilm_reference(), ids, lengths), lengths)


def test_real_vectors(minilm: Checkpoint) -> None:
    reference = SentenceTransformer(str(minilm_directory()), device="cpu", local_files_only=True)
    tokenizer = Tokenizer.from_str(minilm.tokenizer_json.decode())
    encoded = [tokenizer.encode(text).ids for text in TEXTS]
    lengths = torch.tensor([len(ids) for ids in encoded])
    ids = torch.nn.utils.rnn.pad_sequence([torch.tensor(row) for row in encoded], batch_first=True)
    assert minilm.pooling is not None
    vectors = embed(minilm.build(), minilm.pooling, ids, lengths)
    expected = torch.from_numpy(reference.encode(TEXTS))
    torch.testing.assert_close(vectors, expected, atol=1e-5, rtol=0)


def test_real_settings(minilm: Checkpoint) -> None:
    # Its files also say 128 (tokenizer.json) and 512 (twice).
    assert minilm.max_input == 256
    tokenizer = Tokenizer.from_str(minilm.tokenizer_json.decode())
    assert tokenizer.padding is None
    assert tokenizer.truncation is None
    assert len(tokenizer.encode("cat").ids) == 3
    assert len(tokenizer.encode("cat " * 300).ids) == 302
    assert (minilm.family, minilm.pad_id, minilm.eos_ids) == ("bert", 0, ())


def test_every_stored_tensor_is_accounted_for(minilm: Checkpoint) -> None:
    stored = set(load_file(minilm_directory() / "model.safetensors"))
    used = {name for names in minilm.sources.values() for name in names}
    assert minilm.sources.keys() == minilm.tensors.keys()
    assert used | set(minilm.unused) == stored
    assert set(minilm.unused) == {
        "embeddings.position_ids",
        "pooler.dense.bias",
        "pooler.dense.weight",
    }


def test_names_of_models_with_a_head_and_of_older_files(tmp_path: Path) -> None:
    reference = tiny_bert()
    path = save(reference, tmp_path) / "model.safetensors"
    renamed = {
        "bert."
        + name.replace("LayerNorm.weight", "LayerNorm.gamma").replace(
            "LayerNorm.bias", "LayerNorm.beta"
        ): tensor
        for name, tensor in load_file(path).items()
    }
    save_file(renamed | {"cls.predictions.bias": torch.zeros(3)}, path)
    checkpoint = load_checkpoint(tmp_path)
    states = encode(checkpoint.build(), tiny_ids(), LENGTHS)
    assert_same_states(states, reference_states(reference, tiny_ids(), LENGTHS), LENGTHS)
    assert checkpoint.sources["encoder.embedding.norm.weight"] == (
        "bert.embeddings.LayerNorm.gamma",
    )
    assert "cls.predictions.bias" in checkpoint.unused


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
        ({"hidden_act": "mish"}, ["hidden_act", "mish", "gelu"]),
        ({"add_cross_attention": True}, ["add_cross_attention", "True"]),
        ({"position_embedding_type": "relative_key"}, ["position_embedding_type", "relative_key"]),
        ({"is_decoder": True}, ["is_decoder", "True"]),
        ({"quantization_config": {"bits": 4}}, ["quantization_config", "4", "none"]),
        ({"hidden_size": None}, ["lacks hidden_size"]),
    ],
)
def test_refusals(change: dict[str, Any], named: list[str]) -> None:
    with pytest.raises(CheckpointError) as refusal:
        configure(CONFIG | change, "config.json")
    for part in ["config.json", *named]:
        assert part in str(refusal.value)
