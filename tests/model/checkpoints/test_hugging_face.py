"""Directories as Hugging Face's libraries write them, whatever the family."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import modules
from tokenizers import Tokenizer
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from model.checkpoint import Checkpoint, CheckpointError
from model.checkpoints import load_checkpoint
from model.config import Kind, Pooling, PoolingMode
from model.generate import embed, generate_greedy
from tests.checkpoints import PAD
from tests.model.checkpoints.parity import PROMPT
from tests.model.checkpoints.tiny_references import (
    DECODERS,
    ENCODERS,
    save,
    tiny_bert,
    tiny_distilbert,
    tiny_gpt2,
    tiny_llama,
    tiny_qwen2,
    tiny_roberta,
)
from tests.model.references import reference_greedy

TEXTS = ["the cat", "a longer text"]


def save_encoder(model: Any, directory: Path) -> Path:
    """Saves a model with what sentence-transformers needs to know of its tokenizer."""
    save(model, directory)
    PreTrainedTokenizerFast(
        tokenizer_file=str(directory / "tokenizer.json"), pad_token=PAD, model_max_length=30
    ).save_pretrained(directory)
    return directory


def save_sentence_model(
    directory: Path, model: Any, mode: str = "mean", *, normalize: bool = True
) -> SentenceTransformer:
    """Saves a model as sentence-transformers does today."""
    transformer = modules.Transformer(str(save_encoder(model, directory / "part")))
    parts = [transformer, modules.Pooling(48, pooling_mode=mode)]
    parts += [modules.Normalize()] if normalize else []
    reference = SentenceTransformer(modules=parts, device="cpu", prompts={"query": "q: "})
    reference.save(str(directory / "whole"))
    return reference


def vectors_of(checkpoint: Checkpoint) -> Tensor:
    assert checkpoint.pooling is not None
    tokenizer = Tokenizer.from_str(checkpoint.tokenizer_json.decode())
    rows = [torch.tensor(tokenizer.encode(text).ids) for text in TEXTS]
    ids = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
    lengths = torch.tensor([len(row) for row in rows])
    return embed(checkpoint.build(), checkpoint.pooling, ids, lengths)


def assert_same_vectors(checkpoint: Checkpoint, reference: SentenceTransformer) -> None:
    expected = torch.from_numpy(reference.encode(TEXTS))
    torch.testing.assert_close(vectors_of(checkpoint), expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("mode", ["mean", "cls", "max"])
@pytest.mark.parametrize("normalize", [True, False])
def test_vectors_of_every_pooling(tmp_path: Path, mode: str, normalize: bool) -> None:
    reference = save_sentence_model(tmp_path, tiny_bert(), mode, normalize=normalize)
    checkpoint = load_checkpoint(tmp_path / "whole")
    assert checkpoint.pooling == Pooling(PoolingMode(mode), normalize)
    assert checkpoint.max_input == 30
    assert checkpoint.prompts["query"] == "q: "
    assert_same_vectors(checkpoint, reference)


@pytest.mark.parametrize("tiny", ENCODERS.values(), ids=ENCODERS.keys())
def test_vectors_of_every_encoder(tmp_path: Path, tiny: Callable[..., Any]) -> None:
    # sentence-transformers pads with the tokenizer's id, which positions count from.
    changes = {} if tiny is tiny_distilbert else {"pad_token_id": 0}
    reference = save_sentence_model(tmp_path, tiny(**changes))
    assert_same_vectors(load_checkpoint(tmp_path / "whole"), reference)


def test_the_older_layout_has_the_transformer_in_a_folder(tmp_path: Path) -> None:
    save_encoder(tiny_bert(), tmp_path / "0_Transformer")
    settings = {"max_seq_length": 20, "do_lower_case": False}
    (tmp_path / "0_Transformer" / "sentence_bert_config.json").write_text(json.dumps(settings))
    (tmp_path / "1_Pooling").mkdir()
    pooling = {"word_embedding_dimension": 48, "pooling_mode_cls_token": True}
    pooling["pooling_mode_mean_tokens"] = False
    (tmp_path / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    layout = [
        {"idx": index, "name": str(index), "path": f"{index}_{kind}"}
        | {"type": f"sentence_transformers.models.{kind}"}
        for index, kind in enumerate(("Transformer", "Pooling"))
    ]
    (tmp_path / "modules.json").write_text(json.dumps(layout))
    checkpoint = load_checkpoint(tmp_path)
    assert checkpoint.pooling == Pooling(PoolingMode.CLS, normalize=False)
    assert checkpoint.max_input == 20
    reference = SentenceTransformer(str(tmp_path), device="cpu", local_files_only=True)
    assert_same_vectors(checkpoint, reference)


def test_without_the_pooling_folder_nothing_says_how_to_pool(tmp_path: Path) -> None:
    save_sentence_model(tmp_path, tiny_bert())
    shutil.rmtree(tmp_path / "whole" / "1_Pooling")
    assert load_checkpoint(tmp_path / "whole").pooling is None


def test_without_modules_nothing_says_how_to_pool(tmp_path: Path) -> None:
    checkpoint = load_checkpoint(save(tiny_bert(), tmp_path))
    assert checkpoint.pooling is None
    assert checkpoint.max_input == 40


@pytest.mark.parametrize(("limit", "expected"), [(16, 16), (1_000, 40), (int(1e30), 40)])
def test_the_least_limit_counts(tmp_path: Path, limit: int, expected: int) -> None:
    directory = save(tiny_bert(), tmp_path)
    (directory / "tokenizer_config.json").write_text(json.dumps({"model_max_length": limit}))
    assert load_checkpoint(directory).max_input == expected


@pytest.mark.parametrize("limit", ["many", 0, -1, float("nan"), [512]])
def test_a_limit_that_is_none(tmp_path: Path, limit: object) -> None:
    directory = save(tiny_bert(), tmp_path)
    (directory / "tokenizer_config.json").write_text(json.dumps({"model_max_length": limit}))
    with pytest.raises(CheckpointError, match=r"model_max_length is .*; it must be a number"):
        load_checkpoint(directory)


@pytest.mark.parametrize(
    ("tiny", "mode"), [(tiny_qwen2, "lasttoken"), (tiny_llama, "mean"), (tiny_gpt2, "lasttoken")]
)
def test_embeddings_of_a_decoder(tmp_path: Path, tiny: Callable[..., Any], mode: str) -> None:
    """Each token sees those before it, as in text generation."""
    reference = save_sentence_model(tmp_path, tiny(), mode)
    checkpoint = load_checkpoint(tmp_path / "whole")
    assert checkpoint.config.kind is Kind.ENCODER
    assert checkpoint.config.causal_encoder
    assert checkpoint.pooling == Pooling(PoolingMode(mode), normalize=True)
    assert_same_vectors(checkpoint, reference)


def test_an_embedding_model_that_looks_both_ways_is_refused(tmp_path: Path) -> None:
    directory = save(tiny_llama(), tmp_path)
    values = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps(values | {"is_causal": False}))
    with pytest.raises(CheckpointError, match="is_causal is False, supported: True"):
        load_checkpoint(directory)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("tiny", DECODERS.values(), ids=DECODERS.keys())
def test_half_precision_is_upcast(
    tmp_path: Path, tiny: Callable[..., Any], dtype: torch.dtype
) -> None:
    reference = tiny().to(dtype)
    checkpoint = load_checkpoint(save(reference, tmp_path))
    assert {tensor.dtype for tensor in checkpoint.tensors.values()} == {torch.float32}
    tokens = generate_greedy(checkpoint.build(), PROMPT, 64)
    assert tokens == reference_greedy(reference.float(), PROMPT, 64)


@pytest.mark.parametrize("tiny", [tiny_gpt2, tiny_roberta])
def test_shards(tmp_path: Path, tiny: Callable[..., Any]) -> None:
    whole = load_checkpoint(save(tiny(), tmp_path / "whole"))
    save(tiny(), tmp_path / "shards", max_shard_size="40KB")
    assert len(list((tmp_path / "shards").glob("model-*.safetensors"))) > 1
    shards = load_checkpoint(tmp_path / "shards")
    assert shards.sources == whole.sources
    assert all(torch.equal(shards.tensors[name], whole.tensors[name]) for name in whole.tensors)


@pytest.mark.parametrize(
    ("tiny", "embedding"),
    [(tiny_llama, "model.embed_tokens.weight"), (tiny_gpt2, "transformer.wte.weight")],
)
def test_a_tied_head_may_only_repeat_the_embedding(
    tiny: Callable[[], Any], embedding: str, tmp_path: Path
) -> None:
    path = save(tiny(), tmp_path) / "model.safetensors"
    stored = load_file(path)
    save_file(stored | {"lm_head.weight": stored[embedding].clone()}, path)
    assert load_checkpoint(tmp_path).unused == ("lm_head.weight",)
    save_file(stored | {"lm_head.weight": stored[embedding] * 2}, path)
    with pytest.raises(CheckpointError, match=rf"lm_head\.weight must repeat {embedding}, but"):
        load_checkpoint(tmp_path)
