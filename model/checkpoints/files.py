"""The files of a checkpoint: JSON documents and weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from model.checkpoint import CheckpointError

WEIGHTS_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"
_FLOATS = (torch.float32, torch.float16, torch.bfloat16, torch.float64)


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in a file.

    Raises:
        CheckpointError: the file cannot be read or holds anything else.
    """
    try:
        values = json.loads(path.read_bytes())
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} is not JSON: {error}") from None
    if not isinstance(values, dict):
        raise CheckpointError(f"{path} is not a JSON object")
    return values


def read_optional_json(path: Path) -> dict[str, Any]:
    """The JSON object in a file, or an empty one where there is no such file."""
    return read_json(path) if path.exists() else {}


def read_weights(directory: Path) -> dict[str, Tensor]:
    """Every tensor of `model.safetensors`, or of the files that its index names.

    Floating-point tensors come as fp32, whatever they are stored as; others as they are.

    Raises:
        CheckpointError: there are no such files, one is damaged, there is a pickle alone, or a
            tensor is of a type that means nothing without scales beside it.
    """
    if (directory / WEIGHTS_FILE).exists():
        files = [WEIGHTS_FILE]
    elif (directory / INDEX_FILE).exists():
        files = _shards(directory / INDEX_FILE)
    else:
        raise CheckpointError(f"{directory.name} has no {WEIGHTS_FILE}{_conversion(directory)}")
    tensors: dict[str, Tensor] = {}
    for file in files:
        read = _read_file(directory / file)
        if twice := sorted(tensors.keys() & read.keys()):
            raise CheckpointError(f"{directory.name} holds {', '.join(twice)} in several files")
        tensors |= read
    return tensors


def _shards(index: Path) -> list[str]:
    weight_map = read_json(index).get("weight_map")
    if not isinstance(weight_map, dict):
        raise CheckpointError(f"{index} has no weight_map")
    files = sorted({str(file) for file in weight_map.values()})
    if outside := [file for file in files if Path(file).name != file]:
        raise CheckpointError(f"{index} names files outside its folder: {', '.join(outside)}")
    if missing := [file for file in files if not (index.parent / file).exists()]:
        raise CheckpointError(f"{index} names files that are missing: {', '.join(missing)}")
    return files


def _conversion(directory: Path) -> str:
    if not any(directory.glob("*.bin")):
        return ""
    return (
        ", only a pickle (.bin), which is never read because it can run code; convert it where it "
        "is trusted: AutoModel.from_pretrained(DIR).save_pretrained(DIR, safe_serialization=True)"
    )


def _read_file(path: Path) -> dict[str, Tensor]:
    try:
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"cannot read {path}: {error}") from None
    return {name: _upcast(name, tensor) for name, tensor in tensors.items()}


def _upcast(name: str, tensor: Tensor) -> Tensor:
    if not tensor.is_floating_point():
        return tensor
    if tensor.dtype not in _FLOATS:
        raise CheckpointError(
            f"{name} is stored as {tensor.dtype}; supported are {', '.join(map(str, _FLOATS))}"
        )
    return tensor.float()
