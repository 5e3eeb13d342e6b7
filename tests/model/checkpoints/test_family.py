"""Fitting stored tensors to a table."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from model.checkpoint import CheckpointError
from model.checkpoints import llama
from model.checkpoints.family import fit
from tests.checkpoints import DECODER
from tests.model.checkpoints.tiny_references import tiny_llama

CONFIG = llama.configure(tiny_llama().config.to_dict(), "config.json")


@pytest.fixture
def stored() -> dict[str, Tensor]:
    return dict(tiny_llama().named_parameters())


def test_a_table_without_exceptions_takes_tensors_as_they_are(stored: dict[str, Tensor]) -> None:
    fitted = fit(llama.TENSORS, CONFIG, stored)
    assert (
        fitted.tensors["decoder.blocks.2.feed_forward.up.weight"]
        is (stored["model.layers.2.mlp.up_proj.weight"])
    )
    assert fitted.sources["decoder.blocks.2.feed_forward.up.weight"] == (
        "model.layers.2.mlp.up_proj.weight",
    )
    assert {name for names in fitted.sources.values() for name in names} == set(stored)


def test_unused_tensors_are_named(stored: dict[str, Tensor]) -> None:
    leftover = {
        "model.layers.1.self_attn.rotary_emb.inv_freq": torch.ones(4),
        "lm_head.weight": stored["model.embed_tokens.weight"].clone(),
    }
    assert fit(llama.TENSORS, CONFIG, stored | leftover).unused == tuple(sorted(leftover))


def test_an_encoder_of_a_decoder_has_no_use_for_its_head(stored: dict[str, Tensor]) -> None:
    stored["lm_head.weight"] = torch.ones(2, 2)
    table = llama.TENSORS.of_causal_encoder()
    assert fit(table, CONFIG.as_causal_encoder(), stored).unused == ("lm_head.weight",)


def test_every_problem_is_listed_by_the_names_of_the_checkpoint(stored: dict[str, Tensor]) -> None:
    del stored["model.norm.weight"], stored["model.layers.0.mlp.up_proj.weight"]
    stored["model.layers.1.mlp.up_proj.weight"] = torch.ones(3, 2)
    stored["model.layers.9.mlp.up_proj.weight"] = torch.ones(1)
    stored["embed_tokens.weight"] = stored["model.embed_tokens.weight"]
    with pytest.raises(CheckpointError) as refusal:
        fit(llama.TENSORS, CONFIG, stored)
    message = str(refusal.value)
    assert "missing norm.weight" in message
    assert "missing layers.0.mlp.up_proj.weight" in message
    assert "model.layers.1.mlp.up_proj.weight has shape [3, 2] instead of [72, 48]" in message
    assert "unexpected model.layers.9.mlp.up_proj.weight" in message
    assert "embed_tokens.weight is there twice" in message


def test_whole_numbers_are_no_weights(stored: dict[str, Tensor]) -> None:
    stored["model.norm.weight"] = torch.ones(48, dtype=torch.int8)
    with pytest.raises(CheckpointError, match=r"model\.norm\.weight is stored as torch\.int8"):
        fit(llama.TENSORS, CONFIG, stored)


def test_another_models_tensors_do_not_fit(stored: dict[str, Tensor]) -> None:
    with pytest.raises(CheckpointError, match="has shape"):
        fit(llama.TENSORS, DECODER, stored)


def test_a_copy_must_repeat_its_original(stored: dict[str, Tensor]) -> None:
    table = replace(llama.TENSORS, copies={"copy.weight": "norm.weight"})
    norm = stored["model.norm.weight"]
    assert fit(table, CONFIG, stored | {"copy.weight": norm.clone()}).unused == ("copy.weight",)
    with pytest.raises(CheckpointError, match=r"copy\.weight must repeat model\.norm\.weight, but"):
        fit(table, CONFIG, stored | {"copy.weight": norm + 1})


def test_an_option_is_off_where_its_tensor_is_missing(stored: dict[str, Tensor]) -> None:
    names = {**llama.TENSORS.names, "decoder.head.bias": "bias"}
    table = replace(llama.TENSORS, names=names, options={"head_bias": "bias"})
    config = replace(CONFIG, head_bias=True)
    assert not fit(table, config, stored).config.head_bias
    fitted = fit(table, config, stored | {"bias": torch.ones(CONFIG.vocab_size)})
    assert fitted.config.head_bias
    assert fitted.sources["decoder.head.bias"] == ("bias",)
