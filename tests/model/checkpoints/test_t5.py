"""T5 checkpoints: parity with transformers, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from transformers import T5Tokenizer

from model.checkpoint import CheckpointError
from model.checkpoints import load_checkpoint
from model.checkpoints.t5 import configure
from model.checkpoints.tokenizer_files import read_tokenizer
from model.config import Activation
from tests.model.checkpoints.parity import assert_encoder_decoder_parity
from tests.model.checkpoints.tiny_references import save, tiny_t5

VARIANTS: dict[str, dict[str, Any]] = {
    "first version": {},
    "version 1.1": {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
    "other sizes": {"feed_forward_proj": "gated-silu", "layer_norm_epsilon": 1e-2},
}


@pytest.mark.parametrize("changes", VARIANTS.values(), ids=VARIANTS.keys())
def test_states_logits_and_tokens(tmp_path: Path, changes: dict[str, Any]) -> None:
    tied = changes.get("tie_word_embeddings", True)
    checkpoint = assert_encoder_decoder_parity(tiny_t5(**changes), tmp_path)
    assert (checkpoint.family, checkpoint.decoder_start_id, checkpoint.max_input) == ("t5", 0, 512)
    assert checkpoint.config.tied_head == tied
    assert checkpoint.config.head_scale == (48**-0.5 if tied else 1.0)
    stored = set(load_file(tmp_path / "model.safetensors"))
    assert {name for names in checkpoint.sources.values() for name in names} == stored


def test_a_head_is_tied_as_the_older_field_says(tmp_path: Path) -> None:
    path = save(tiny_t5(tie_word_embeddings=False), tmp_path) / "config.json"
    values = json.loads(path.read_text())
    del values["scale_decoder_outputs"]
    path.write_text(json.dumps(values | {"tie_word_embeddings": False}))
    assert not load_checkpoint(tmp_path).config.tied_head
    path.write_text(json.dumps(values | {"tie_word_embeddings": True}))
    with pytest.raises(CheckpointError, match=r"lm_head\.weight must repeat shared\.weight"):
        load_checkpoint(tmp_path)


def test_the_first_files_have_a_bias_of_cross_attention(tmp_path: Path) -> None:
    path = save(tiny_t5(), tmp_path) / "model.safetensors"
    name = "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"
    save_file(load_file(path) | {name: torch.ones(12, 4)}, path)
    assert load_checkpoint(tmp_path).unused == (name,)


def test_its_tokenizer_is_made_of_sentence_pieces(tmp_path: Path) -> None:
    (tmp_path / "corpus.txt").write_text("the lamp and the sea and the keeper of the lamp\n" * 20)
    sentencepiece.SentencePieceTrainer.train(
        input=str(tmp_path / "corpus.txt"),
        model_prefix=str(tmp_path / "spiece"),
        vocab_size=40,
        hard_vocab_limit=False,
        num_threads=1,
        minloglevel=2,
        pad_id=0,
        eos_id=1,
        unk_id=2,
        bos_id=-1,
    )
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "t5"}))
    tokenizer = Tokenizer.from_str(read_tokenizer(tmp_path).decode())
    reference = T5Tokenizer.from_pretrained(tmp_path, local_files_only=True)
    pieces = sentencepiece.SentencePieceProcessor(str(tmp_path / "spiece.model"))
    for text in ("the keeper and the lamp", "", "sea 東京", "the <extra_id_3> lamp"):
        assert tokenizer.encode(text).ids == reference(text).input_ids
    assert tokenizer.encode("the lamp").ids == [*pieces.encode("the lamp"), 1]


CONFIG = {"vocab_size": 30, "d_model": 8, "num_heads": 2, "d_kv": 4, "d_ff": 12, "num_layers": 1}


@pytest.mark.parametrize(
    ("stated", "activation", "gated"),
    [
        (None, Activation.RELU, False),
        ("gelu", Activation.GELU, False),
        ("gated-gelu", Activation.GELU_TANH, True),
        ("gated-relu", Activation.RELU, True),
    ],
)
def test_feed_forward(stated: str | None, activation: Activation, gated: bool) -> None:
    config = configure(CONFIG | {"feed_forward_proj": stated}, "config.json")
    assert (config.activation, config.gated) == (activation, gated)
    assert (config.decoder_layers, config.max_positions) == (1, 512)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"feed_forward_proj": "gated-mish"}, ["feed_forward_proj", "gated-mish", "gelu_new"]),
        ({"feed_forward_proj": "sparse-relu"}, ["feed_forward_proj", "sparse-relu"]),
        ({"feed_forward_proj": 3}, ["feed_forward_proj", "3"]),
        ({"dense_act_fn": "silu"}, ["dense_act_fn", "silu", "relu"]),
        ({"is_gated_act": True}, ["is_gated_act", "True"]),
        ({"is_decoder": True}, ["is_decoder", "True"]),
        ({"quantization_config": {"bits": 4}}, ["quantization_config"]),
        ({"d_kv": None, "num_heads": None}, ["lacks num_heads, d_kv"]),
    ],
)
def test_refusals(change: dict[str, Any], named: list[str]) -> None:
    with pytest.raises(CheckpointError) as refusal:
        configure(CONFIG | change, "config.json")
    for part in ["config.json", *named]:
        assert part in str(refusal.value)
