"""The native format: what is written comes back."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from model.checkpoint import Checkpoint, CheckpointError
from model.checkpoints import load_checkpoint
from model.checkpoints.native import save_native
from model.checkpoints.tokenizer_files import without_padding
from model.config import Pooling, PoolingMode, TransformerConfig
from tests.checkpoints import (
    DECODER,
    ENCODER,
    ENCODER_DECODER,
    LEARNED_DECODER,
    RELATIVE_ENCODER_DECODER,
    byte_tokenizer,
    tiny_checkpoint,
    write_decoder,
    write_encoder,
    write_encoder_decoder,
    write_learned_decoder,
    write_relative_encoder_decoder,
)


def assert_equal(read: Checkpoint, written: Checkpoint) -> None:
    assert read.tensors.keys() == written.tensors.keys()
    assert all(torch.equal(read.tensors[name], written.tensors[name]) for name in read.tensors)
    for name in (field.name for field in fields(Checkpoint)):
        if name not in ("tensors", "tokenizer_json", "target_tokenizer_json"):
            assert getattr(read, name) == getattr(written, name), name
    assert read.tokenizer_json == without_padding(written.tokenizer_json.decode())


@pytest.mark.parametrize(
    "config", [ENCODER, DECODER, LEARNED_DECODER, ENCODER_DECODER, RELATIVE_ENCODER_DECODER]
)
def test_round_trip(tmp_path: Path, config: TransformerConfig) -> None:
    checkpoint = tiny_checkpoint(config)
    save_native(tmp_path, checkpoint)
    assert_equal(load_checkpoint(tmp_path), checkpoint)


def test_every_field_comes_back(tmp_path: Path) -> None:
    checkpoint = replace(
        tiny_checkpoint(ENCODER_DECODER),
        max_input=77,
        pooling=Pooling(PoolingMode.CLS, normalize=False),
        bos_id=9,
        eos_ids=(1, 2),
        generation={"do_sample": True, "temperature": 0.5},
        prompts={"query": "query: ", "passage": "passage: "},
        default_prompt="query",
        chat_template="{{ messages }} ü",
        chat_tokens={"bos_token": "<s>"},
        target_tokenizer_json=byte_tokenizer(bracketed=True).to_str().encode(),
    )
    save_native(tmp_path, checkpoint)
    read = load_checkpoint(tmp_path)
    assert_equal(read, checkpoint)
    assert read.target_tokenizer_json == checkpoint.target_tokenizer_json


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_comes_back_as_fp32(tmp_path: Path, dtype: torch.dtype) -> None:
    checkpoint = tiny_checkpoint(DECODER)
    save_native(tmp_path, checkpoint, dtype)
    read = load_checkpoint(tmp_path).tensors
    for name, tensor in checkpoint.tensors.items():
        assert torch.equal(read[name], tensor.to(dtype).float())


@pytest.mark.parametrize(
    "write",
    [
        write_encoder,
        write_decoder,
        write_learned_decoder,
        write_encoder_decoder,
        write_relative_encoder_decoder,
    ],
)
def test_the_tiny_checkpoints_are_random_in_every_parameter(tmp_path: Path, write: Any) -> None:
    first = load_checkpoint(write(tmp_path / "first", seed=1))
    second = load_checkpoint(write(tmp_path / "second", seed=2))
    again = load_checkpoint(write(tmp_path / "again", seed=1))
    for name, tensor in first.tensors.items():
        assert len(set(tensor.flatten().tolist())) > tensor.numel() * 0.9, name
        assert not torch.equal(tensor, second.tensors[name])
        assert torch.equal(tensor, again.tensors[name])


@pytest.mark.parametrize(
    "text", ["plain", "the and in", "🎉 👨‍👩‍👧 café 한국어\t\n\x00", "<|im_end|>"]
)
def test_any_text_round_trips(text: str) -> None:
    tokenizer = byte_tokenizer()
    ids = tokenizer.encode(text).ids
    assert tokenizer.decode(ids, skip_special_tokens=False) == text
    assert len(byte_tokenizer().encode("🎉").ids) == 4


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"layers": 3}, "unknown fields: layers"),
        ({"transformer": None}, "transformer is missing"),
        ({"max_input": None}, "max_input is missing"),
        ({"max_input": "many"}, "max_input is 'many' and must be of type int"),
        ({"eos_ids": 3, "prompts": []}, "eos_ids is 3.*prompts is"),
        ({"pooling": {"mode": "sum", "normalize": True}}, "pooling is .*'sum'.*mean, cls, max"),
        ({"pooling": "mean"}, "pooling is 'mean'"),
        ({"transformer": {"kind": "decoder"}}, "missing configuration fields: vocab_size"),
    ],
)
def test_refusals(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    directory = write_decoder(tmp_path)
    path = directory / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(CheckpointError, match=message):
        load_checkpoint(directory)
