"""The files of a checkpoint, and what is wrong with them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from model.checkpoint import CheckpointError
from model.checkpoints.files import read_json, read_weights


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "No such file"),
        ("{", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ('{"a": ' + "9" * 5_000 + "}", "is not JSON"),
        ("[1]", "is not a JSON object"),
    ],
)
def test_json_that_is_none(tmp_path: Path, content: str | None, message: str) -> None:
    path = tmp_path / "config.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(CheckpointError, match=f"config.json.*{message}"):
        read_json(path)


def test_floating_point_is_upcast_and_the_rest_left_alone(tmp_path: Path) -> None:
    stored = {
        "half": torch.tensor([1.5], dtype=torch.float16),
        "brain": torch.tensor([2.5], dtype=torch.bfloat16),
        "double": torch.tensor([0.1], dtype=torch.float64),
        "ids": torch.tensor([3]),
    }
    save_file(stored, tmp_path / "model.safetensors")
    read = read_weights(tmp_path)
    assert {name: tensor.dtype for name, tensor in read.items()} == {
        "half": torch.float32,
        "brain": torch.float32,
        "double": torch.float32,
        "ids": torch.int64,
    }
    assert all(torch.equal(read[name], stored[name].to(read[name].dtype)) for name in stored)


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_types_that_need_scales(tmp_path: Path, dtype: torch.dtype) -> None:
    save_file({"weight": torch.ones(3).to(dtype)}, tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError, match=f"weight is stored as {dtype}; supported"):
        read_weights(tmp_path)


def test_a_pickle_alone_is_refused_with_the_way_out_and_never_read(tmp_path: Path) -> None:
    # Unpickling it would write the file `ran`.
    trap = f"cos\nsystem\n(S'touch {tmp_path / 'ran'}'\ntR."
    (tmp_path / "pytorch_model.bin").write_text(trap)
    with pytest.raises(CheckpointError, match=r"pickle.*save_pretrained"):
        read_weights(tmp_path)
    save_file({"weight": torch.ones(1)}, tmp_path / "model.safetensors")
    assert read_weights(tmp_path).keys() == {"weight"}
    assert not (tmp_path / "ran").exists()


def test_no_weights(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"has no model\.safetensors$"):
        read_weights(tmp_path)


@pytest.mark.parametrize(
    "content", [b"", b"version https://git-lfs.github.com/spec/v1\n", b"\0" * 99]
)
def test_damaged_weights(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "model.safetensors").write_bytes(content)
    with pytest.raises(CheckpointError, match=r"cannot read .*model\.safetensors"):
        read_weights(tmp_path)


def test_weights_cut_short(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    save_file({"weight": torch.ones(100)}, path)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(CheckpointError, match=r"cannot read .*model\.safetensors"):
        read_weights(tmp_path)


@pytest.mark.parametrize(
    ("index", "message"),
    [
        ({}, "has no weight_map"),
        ({"weight_map": {"a": "../outside.safetensors"}}, "outside its folder"),
        ({"weight_map": {"a": "/etc/outside.safetensors"}}, "outside its folder"),
        ({"weight_map": {"a": "one.safetensors", "b": "two.safetensors"}}, "one.*, two"),
    ],
)
def test_a_wrong_index(tmp_path: Path, index: dict[str, object], message: str) -> None:
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(CheckpointError, match=message):
        read_weights(tmp_path)


def write_shards(directory: Path, **shards: list[str]) -> None:
    """Writes a file for each shard with its tensors, and an index."""
    weight_map: dict[str, str] = {}
    for file, names in shards.items():
        save_file({name: torch.ones(1) for name in names}, directory / f"{file}.safetensors")
        weight_map |= dict.fromkeys(names, f"{file}.safetensors")
    index = json.dumps({"weight_map": weight_map})
    (directory / "model.safetensors.index.json").write_text(index)


def test_shards_are_read_together(tmp_path: Path) -> None:
    write_shards(tmp_path, one=["a", "b"], two=["c"])
    assert sorted(read_weights(tmp_path)) == ["a", "b", "c"]


def test_a_tensor_in_two_shards(tmp_path: Path) -> None:
    write_shards(tmp_path, one=["a", "b"], two=["b"])
    with pytest.raises(CheckpointError, match="holds b in several files"):
        read_weights(tmp_path)


def test_one_file_counts_before_shards_as_in_transformers(tmp_path: Path) -> None:
    write_shards(tmp_path, one=["a"])
    save_file({"whole": torch.ones(1)}, tmp_path / "model.safetensors")
    assert read_weights(tmp_path).keys() == {"whole"}
