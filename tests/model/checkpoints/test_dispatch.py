"""Finding the family of what lies at a path."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from model.checkpoint import CheckpointError
from model.checkpoints import load_checkpoint
from tests.checkpoints import write_decoder


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, r"neither a config\.json nor a \.gguf"),
        ({"a.gguf": "", "b.gguf": ""}, "several .gguf files, name one: a.gguf, b.gguf"),
        ({"a.gguf": "no such thing"}, "cannot read .*a.gguf"),
        ({"config.json": "{"}, "config.json is not JSON"),
        ({"config.json": "{}"}, "model_type None; supported are bert, formerd, llama"),
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


def test_a_native_directory(tmp_path: Path) -> None:
    assert load_checkpoint(write_decoder(tmp_path)).family == "native"
    assert json.loads((tmp_path / "config.json").read_text())["model_type"] == "formerd"
