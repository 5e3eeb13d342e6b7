"""Every family of checkpoints through build, the whole gate included."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from export.build import build
from export.build_options import BuildOptions
from export.gate import check_artefact
from export.manifest import PoolingSpec, load_manifest
from export.progress import SilentSteps
from export.source import resolve_source
from export.weight_checks import WeightChecks
from model.checkpoints import load_checkpoint
from model.config import PoolingMode
from tests.artefacts import read_weight, unverified, weight_names, write_weight
from tests.model.checkpoints.tiny_references import (
    DECODERS,
    ENCODER_DECODERS,
    ENCODERS,
    save,
    tiny_qwen2,
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
ONE_LAYER_EACH = {"encoder_layers": 1, "decoder_layers": 1}
GATED_T5 = {"feed_forward_proj": "gated-gelu", "num_layers": 1, "num_decoder_layers": 1}
# By family, what is otherwise than in the tiny models: shallow, so that tracing is quick.
CHANGES: dict[str, dict[str, Any]] = {
    "bert": {"num_hidden_layers": 1},
    "distilbert": {"n_layers": 1},
    "roberta": {"num_hidden_layers": 2},
    "xlm-roberta": {"num_hidden_layers": 1},
    "gpt2": {"n_layer": 2},
    "llama": WIDE_HEADS | {"rope_parameters": LLAMA3},
    "mistral": WIDE_HEADS | {"rope_parameters": LINEAR},
    "qwen2": WIDE_HEADS,
    "bart": ONE_LAYER_EACH | {"decoder_attention_heads": 2, "encoder_attention_heads": 2},
    "marian": ONE_LAYER_EACH | {"decoder_attention_heads": 3, "encoder_attention_heads": 3},
    "t5": GATED_T5,
}


def _assert_each_zeroed_tensor_is_found(directory: Path) -> None:
    """EXP-04: whatever the digests say, and whether or not an output shows it."""
    checkpoint, artefact = load_checkpoint(directory / "checkpoint"), directory / "artefact"
    zeroed = set()
    for role in load_manifest(artefact).graphs.keys() - {"mover"}:
        for name in weight_names(artefact, role):
            good = read_weight(artefact, name, role)
            if good.dtype.kind != "f" or good.size == 1:
                continue  # the likes of a shape or an epsilon, which numbers show
            write_weight(artefact, name, np.zeros_like(good), role)
            checks = WeightChecks(checkpoint).compare(unverified(artefact))
            failures = [check.shape for check in checks if not check.passed]
            write_weight(artefact, name, good, role)
            assert failures == [f"{role}.onnx: {name} {list(good.shape)}"]
            zeroed.add(name)
    assert zeroed >= checkpoint.tensors.keys()


@pytest.mark.parametrize("family", ENCODERS)
def test_an_encoder(tmp_path: Path, family: str) -> None:
    model = ENCODERS[family](**CHANGES[family])
    source = resolve_source(str(save(model, tmp_path / "checkpoint")))
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


@pytest.mark.parametrize("family", DECODERS)
def test_a_decoder(tmp_path: Path, family: str) -> None:
    model = DECODERS[family](**CHANGES[family])
    source = resolve_source(str(save(model, tmp_path / "checkpoint")))
    options = BuildOptions(tmp_path / "artefact", "tiny")
    build(source, options, SilentSteps(), gate=check_artefact)
    manifest = load_manifest(tmp_path / "artefact")
    assert manifest.limits.max_positions == 128
    assert manifest.parity.checks > 40
    _assert_each_zeroed_tensor_is_found(tmp_path)


# BART is Marian with the learned positions of RoBERTa.
@pytest.mark.parametrize(
    "family",
    [
        pytest.param(family, marks=[pytest.mark.full] if family == "bart" else [])
        for family in ENCODER_DECODERS
    ],
)
def test_an_encoder_decoder(tmp_path: Path, family: str) -> None:
    model = ENCODER_DECODERS[family](**CHANGES[family])
    source = resolve_source(str(save(model, tmp_path / "checkpoint")))
    options = BuildOptions(tmp_path / "artefact", "tiny")
    build(source, options, SilentSteps(), gate=check_artefact)
    manifest = load_manifest(tmp_path / "artefact")
    assert manifest.pooling == PoolingSpec(mode="mean", normalize=False, dimensions=48)
    assert manifest.special_ids.decoder_start == 0
    assert manifest.decoding.last_id == (None if family == "t5" else 1)
    assert manifest.parity.checks > 100
    _assert_each_zeroed_tensor_is_found(tmp_path)
