"""Finding the family of what lies at a path."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from model.checkpoint import CheckpointError
from model.checkpoints import load_checkpoint
from tests.checkpoints import write_decoder
from tests.model.checkpoints.tiny_references import FAMILIES


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, r"neither a config\.json nor a \.gguf"),
        ({"a.gguf": "", "b.gguf": ""}, "several .gguf files, name one: a.gguf, b.gguf"),
        ({"a.gguf": "no such thing"}, "cannot read .*a.gguf"),
        ({"config.json": "{"}, "config.json is not JSON"),
        ({"config.json": "{}"}, "model_type None; supported are bart, bert, distilbert, formerd"),
        ({"config.json": '{"model_type": ["bert"]}'}, r"model_type \['bert'\]"),
        ({"config.json": '{"model_type": "mpnet"}'}, "model_type 'mpnet'"),
        ({"config.json": '{"model_type": "mamba"}'}, "model_type 'mamba'"),
        (
            {"config.json": '{"model_type": "llama", "auto_map": {"AutoModel": "own.Model"}}'},
            r"custom code \(auto_map\), which is never run",
        ),
    ],
)
def test_refusals(tmp_path: Path, files: dict[str, str], message: str) -> None:
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    with pytest.raises(CheckpointError, match=message):
        load_checkpoint(tmp_path)


def test_nothing_there(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="nowhere does not exist"):
        load_checkpoint(tmp_path / "nowhere")


def test_a_file_of_another_kind(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_text("")
    with pytest.raises(CheckpointError, match=r"neither a directory nor a \.gguf file"):
        load_checkpoint(tmp_path / "model.onnx")


SIZES = (
    "vocab_size",
    *("hidden_size", "num_attention_heads", "intermediate_size", "num_hidden_layers"),
    *("dim", "n_heads", "hidden_dim", "n_layers"),
    *("n_embd", "n_head", "n_layer", "n_positions"),
    "max_position_embeddings",
    *("d_model", "encoder_attention_heads", "decoder_attention_heads"),
    *("encoder_ffn_dim", "decoder_ffn_dim", "encoder_layers", "decoder_layers"),
    *("num_heads", "d_kv", "d_ff", "num_layers"),
)
LAYERS = ("num_hidden_layers", "n_layers", "n_layer", "encoder_layers", "num_layers")


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("layers", [10**9, -1, 1e9, "12"])
def test_sizes_out_of_bounds_are_refused_before_any_weight_is_read(
    tmp_path: Path, family: str, layers: object
) -> None:
    values = dict.fromkeys(SIZES, 8) | dict.fromkeys(LAYERS, layers)
    (tmp_path / "config.json").write_text(json.dumps(values | {"model_type": family}))
    (tmp_path / "model.safetensors").write_text("no weights")
    began = time.process_time()
    with pytest.raises(CheckpointError, match=rf"coder_layers is '?{layers}"):
        load_checkpoint(tmp_path)
    assert time.process_time() - began < 0.05  # about a millisecond: nothing was allocated


def test_native_sizes_out_of_bounds(tmp_path: Path) -> None:
    path = write_decoder(tmp_path) / "config.json"
    values = json.loads(path.read_text())
    values["transformer"]["decoder_layers"] = 10**9
    path.write_text(json.dumps(values))
    with pytest.raises(CheckpointError, match="decoder_layers is 1000000000"):
        load_checkpoint(tmp_path)


@pytest.mark.parametrize("family", ["llama", "roberta"])
def test_a_pickle_is_never_read(tmp_path: Path, family: str) -> None:
    values = dict.fromkeys(SIZES, 8) | {"num_attention_heads": 2, "model_type": family}
    (tmp_path / "config.json").write_text(json.dumps(values))
    # Unpickling it would write the file `ran`.
    trap = f"cos\nsystem\n(S'touch {tmp_path / 'ran'}'\ntR."
    for name in ("pytorch_model.bin", "model.pt", "training_args.bin"):
        (tmp_path / name).write_text(trap)
    with pytest.raises(CheckpointError, match=r"pickle \(\.bin\), which is never read.*save_pre"):
        load_checkpoint(tmp_path)
    assert not (tmp_path / "ran").exists()


def test_a_safetensors_file_beside_a_pickle_is_read(tmp_path: Path) -> None:
    (write_decoder(tmp_path) / "pytorch_model.bin").write_text("no weights")
    assert load_checkpoint(tmp_path).family == "native"


def test_a_native_directory(tmp_path: Path) -> None:
    assert load_checkpoint(write_decoder(tmp_path)).family == "native"
    assert json.loads((tmp_path / "config.json").read_text())["model_type"] == "formerd"
