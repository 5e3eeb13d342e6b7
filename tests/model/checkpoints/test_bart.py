"""BART checkpoints: parity with transformers, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from transformers import BartTokenizer

from model.checkpoint import CheckpointError
from model.checkpoints import load_checkpoint
from model.checkpoints.bart import configure
from model.checkpoints.tokenizer_files import read_tokenizer
from model.config import Positions
from model.generate import logits, remember
from tests.checkpoints import byte_tokenizer
from tests.model.checkpoints.parity import (
    LENGTHS,
    assert_encoder_decoder_parity,
    reference_target_logits,
    tiny_ids,
)
from tests.model.checkpoints.tiny_references import save, tiny_bart

VARIANTS: dict[str, dict[str, Any]] = {
    "as published": {},
    "scaled embeddings": {"scale_embedding": True, "activation_function": "relu"},
    "untied head": {"tie_word_embeddings": False},
}


@pytest.mark.parametrize("changes", VARIANTS.values(), ids=VARIANTS.keys())
def test_states_logits_and_tokens(tmp_path: Path, changes: dict[str, Any]) -> None:
    reference = tiny_bart(**changes)
    if not reference.config.tie_word_embeddings:  # transformers then ties the stacks no more
        for stack in (reference.model.encoder, reference.model.decoder):
            stack.embed_tokens.weight = reference.model.shared.weight
    checkpoint = assert_encoder_decoder_parity(reference, tmp_path)
    assert checkpoint.config.position_offset == 2
    assert (checkpoint.family, checkpoint.decoder_start_id, checkpoint.max_input) == (
        "bart",
        0,
        128,
    )


RULES: dict[str, dict[str, Any]] = {
    "first": {"forced_bos_token_id": 7},
    "last": {"forced_eos_token_id": 36},
    "forbidden": {"bad_words_ids": [[0], [35], [90]], "suppress_tokens": [91]},
    "no repetition": {"no_repeat_ngram_size": 2, "min_length": 6},
    "renormalised": {"bad_words_ids": [[0]], "renormalize_logits": True},
}


@pytest.mark.parametrize("rules", RULES.values(), ids=RULES.keys())
def test_rules_of_its_generation_config(tmp_path: Path, rules: dict[str, Any]) -> None:
    reference = tiny_bart()
    reference.generation_config.update(**rules)
    assert_encoder_decoder_parity(reference, tmp_path)


def test_every_stored_tensor_is_used(tmp_path: Path) -> None:
    checkpoint = load_checkpoint(save(tiny_bart(), tmp_path))
    stored = set(load_file(tmp_path / "model.safetensors"))
    assert {name for names in checkpoint.sources.values() for name in names} == stored
    assert not checkpoint.unused


def test_without_an_output_bias(tmp_path: Path) -> None:
    reference = tiny_bart()
    path = save(reference, tmp_path) / "model.safetensors"
    save_file({name: t for name, t in load_file(path).items() if "logits_bias" not in name}, path)
    checkpoint = load_checkpoint(tmp_path)
    assert not checkpoint.config.head_bias
    reference.final_logits_bias.zero_()
    expected = reference_target_logits(reference, tiny_ids(), LENGTHS, tiny_ids())
    model = checkpoint.build()
    scores, _ = logits(model, tiny_ids(), source=remember(model, tiny_ids(), LENGTHS))
    torch.testing.assert_close(scores, expected, atol=1e-4, rtol=0)


def test_copies_of_the_embedding(tmp_path: Path) -> None:
    path = save(tiny_bart(), tmp_path) / "model.safetensors"
    stored = load_file(path)
    names = ("lm_head.weight", "model.encoder.embed_tokens.weight")
    save_file(stored | {name: stored["model.shared.weight"].clone() for name in names}, path)
    assert load_checkpoint(tmp_path).unused == tuple(sorted(names))
    save_file(stored | {names[1]: stored["model.shared.weight"] * 2}, path)
    message = rf"{names[1]} must repeat model\.shared\.weight, but differs from it"
    with pytest.raises(CheckpointError, match=message):
        load_checkpoint(tmp_path)


def test_its_tokenizer_is_made_of_a_vocabulary_and_merges(tmp_path: Path) -> None:
    byte_tokenizer().model.save(str(tmp_path))
    vocabulary = json.loads((tmp_path / "vocab.json").read_text())
    specials = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
    vocabulary |= {token: len(vocabulary) + number for number, token in enumerate(specials)}
    (tmp_path / "vocab.json").write_text(json.dumps(vocabulary))
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bart"}))
    tokenizer = Tokenizer.from_str(read_tokenizer(tmp_path).decode())
    reference = BartTokenizer.from_pretrained(tmp_path, local_files_only=True)
    for text in ("the lamp and  the sea", " naïve 東京 🎉", "", "<mask>"):
        ids = tokenizer.encode(text).ids
        assert ids == reference(text).input_ids
        assert (ids[0], ids[-1]) == (vocabulary["<s>"], vocabulary["</s>"])


CONFIG = {
    "vocab_size": 30,
    "d_model": 8,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 12,
    "decoder_ffn_dim": 12,
    "max_position_embeddings": 7,
}


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"activation_function": "mish"}, ["activation_function", "mish"]),
        ({"normalize_before": True}, ["normalize_before", "True"]),
        ({"normalize_embedding": False}, ["normalize_embedding", "False"]),
        ({"add_final_layer_norm": True}, ["add_final_layer_norm", "True"]),
        ({"is_decoder": True}, ["is_decoder", "True"]),
        ({"quantization_config": {"bits": 4}}, ["quantization_config"]),
        ({"decoder_attention_heads": 4}, ["encoder_attention_heads is 2", "is 4"]),
        ({"decoder_ffn_dim": 16}, ["encoder_ffn_dim is 12", "decoder_ffn_dim is 16"]),
        ({"d_model": None, "decoder_layers": None}, ["lacks d_model, decoder_layers"]),
    ],
)
def test_refusals(change: dict[str, Any], named: list[str]) -> None:
    assert configure(CONFIG, "config.json").positions is Positions.LEARNED
    with pytest.raises(CheckpointError) as refusal:
        configure(CONFIG | change, "config.json")
    for part in ["config.json", *named]:
        assert part in str(refusal.value)
