"""Every family of checkpoints through build, the whole gate included."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from export.build import BuildOptions, build
from export.gate import check_artefact
from export.manifest import PoolingSpec, load_manifest
from export.progress import SilentSteps
from export.source import resolve_source
from export.weight_checks import WeightChecks
from model.checkpoints import load_checkpoint
from model.config import PoolingMode
from tests.artefacts import read_weight, unverified, weight_names, write_weight
from tests.model.checkpoints.tiny_references import (
    save,
    tiny_bert,
    tiny_distilbert,
    tiny_gpt2,
    tiny_llama,
    tiny_mistral,
    tiny_qwen2,
    tiny_roberta,
    tiny_xlm_roberta,
)

# The attention operator rotates heads of 16 numbers at least.
WIDE_HEADS = {"num_attention_heads": 3, "num_key_value_heads": 1, "num_hidden_layers": 1}
LLAMA3 = {
    "rope_theta": 100.0,
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
LINEAR = {"rope_theta": 100.0, "rope_type": "linear", "factor": 4.0}
ENCODERS: dict[str, Callable[[], Any]] = {
    "bert": lambda: tiny_bert(num_hidden_layers=1),
    "distilbert": lambda: tiny_distilbert(n_layers=1),
    "roberta": lambda: tiny_roberta(num_hidden_layers=2),
    "xlm-roberta": lambda: tiny_xlm_roberta(num_hidden_layers=1),
}
DECODERS: dict[str, Callable[[], Any]] = {
    "gpt2": lambda: tiny_gpt2(n_layer=2),
    "llama with llama3 scaling": lambda: tiny_llama(**WIDE_HEADS, rope_parameters=LLAMA3),
    "mistral with linear scaling": lambda: tiny_mistral(**WIDE_HEADS, rope_parameters=LINEAR),
    "qwen2": lambda: tiny_qwen2(**WIDE_HEADS),
}


def _assert_each_zeroed_tensor_is_found(directory: Path) -> None:
    """EXP-04: whatever the digests say, and whether or not an output shows it."""
    checkpoint, artefact = load_checkpoint(directory / "checkpoint"), directory / "artefact"
    weights = {name: read_weight(artefact, name) for name in weight_names(artefact)}
    floats = {name: good for name, good in weights.items() if good.dtype.kind == "f"}
    assert len(floats) >= len(checkpoint.tensors)
    for name, good in floats.items():
        if good.size == 1:
            continue  # the likes of an epsilon, which numbers show
        write_weight(artefact, name, np.zeros_like(good))
        checks = WeightChecks(checkpoint).compare(unverified(artefact))
        failures = [check.shape for check in checks if not check.passed]
        write_weight(artefact, name, good)
        assert failures == [f"{_graph_of(artefact)}: {name} {list(good.shape)}"]


def _graph_of(artefact: Path) -> str:
    return f"{load_manifest(artefact).kind}.onnx"


@pytest.mark.parametrize("tiny", ENCODERS.values(), ids=ENCODERS.keys())
def test_an_encoder(tmp_path: Path, tiny: Callable[[], Any]) -> None:
    source = resolve_source(str(save(tiny(), tmp_path / "checkpoint")))
    options = BuildOptions(tmp_path / "artefact", "tiny", pooling=PoolingMode.MEAN)
    build(source, options, SilentSteps(), gate=check_artefact)
    manifest = load_manifest(tmp_path / "artefact")
    assert manifest.limits.max_input == 40
    assert manifest.parity.checks > 40
    _assert_each_zeroed_tensor_is_found(tmp_path)


def test_an_encoder_of_a_decoder(tmp_path: Path) -> None:
    """As Sentence-Transformers keeps it: causal, and the last token says what the text is."""
    checkpoint = save(tiny_qwen2(**WIDE_HEADS), tmp_path / "checkpoint")
    layout = [
        {"path": path, "type": f"sentence_transformers.models.{kind}"}
        for path, kind in (("", "Transformer"), ("1_Pooling", "Pooling"), ("2", "Normalize"))
    ]
    (checkpoint / "modules.json").write_text(json.dumps(layout))
    (checkpoint / "1_Pooling").mkdir()
    (checkpoint / "1_Pooling" / "config.json").write_text('{"pooling_mode": "lasttoken"}')
    options = BuildOptions(tmp_path / "artefact", "tiny")
    build(resolve_source(str(checkpoint)), options, SilentSteps(), gate=check_artefact)
    manifest = load_manifest(tmp_path / "artefact")
    assert manifest.kind == "encoder"
    assert manifest.pooling == PoolingSpec(mode="lasttoken", normalize=True, dimensions=48)
    _assert_each_zeroed_tensor_is_found(tmp_path)


@pytest.mark.parametrize("tiny", DECODERS.values(), ids=DECODERS.keys())
def test_a_decoder(tmp_path: Path, tiny: Callable[[], Any]) -> None:
    source = resolve_source(str(save(tiny(), tmp_path / "checkpoint")))
    options = BuildOptions(tmp_path / "artefact", "tiny")
    build(source, options, SilentSteps(), gate=check_artefact)
    manifest = load_manifest(tmp_path / "artefact")
    assert manifest.limits.max_positions == 128
    assert manifest.parity.checks > 40
    _assert_each_zeroed_tensor_is_found(tmp_path)
