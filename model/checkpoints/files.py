"""The files of a checkpoint: JSON documents, weights and the tokenizer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from tokenizers import Tokenizer
from torch import Tensor

from model.checkpoint import CheckpointError

WEIGHTS_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"
TOKENIZER_FILE = "tokenizer.json"


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in a file.

    Raises:
        CheckpointError: the file cannot be read or holds anything else.
    """
    try:
        values = json.loads(path.read_bytes())
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror}") from None
    except ValueError as error:
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
        CheckpointError: there are no such files, one is damaged, or there is a pickle alone.
    """
    if (directory / INDEX_FILE).exists():
        files = _shards(directory / INDEX_FILE)
    elif (directory / WEIGHTS_FILE).exists():
        files = [WEIGHTS_FILE]
    else:
        raise CheckpointError(f"{directory.name} has no {WEIGHTS_FILE}{_conversion(directory)}")
    return {name: tensor for file in files for name, tensor in _read_file(directory / file)}


def read_tokenizer(
    directory: Path, name: str = TOKENIZER_FILE, *, lowercase: bool = False
) -> bytes:
    """The content of a tokenizer's file, its padding and truncation switched off.

    Args:
        lowercase: whether text is to be lowercased before anything else.

    Raises:
        CheckpointError: there is no such file, or it holds no tokenizer.
    """
    path = directory / name
    if not path.exists():
        raise CheckpointError(
            f"{directory.name} has no {name}; write it where transformers can read the tokenizer: "
            "AutoTokenizer.from_pretrained(DIR).save_pretrained(DIR)"
        )
    values = read_json(path)
    if lowercase:
        steps = [step for step in ({"type": "Lowercase"}, values.get("normalizer")) if step]
        values["normalizer"] = {"type": "Sequence", "normalizers": steps}
    try:
        return without_padding(json.dumps(values, ensure_ascii=False))
    except Exception as error:  # tokenizers raises no narrower type
        raise CheckpointError(f"{path} holds no tokenizer: {error}") from None


def without_padding(text: str) -> bytes:
    """A tokenizer's JSON with padding and truncation switched off.

    Both depend on the call, not on the model: formerd cuts ids itself and never pads text.
    """
    tokenizer = Tokenizer.from_str(text)
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer.to_str().encode()


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


def _read_file(path: Path) -> list[tuple[str, Tensor]]:
    try:
        with safe_open(path, framework="pt") as file:
            return [(name, _upcast(file.get_tensor(name))) for name in file.keys()]  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"cannot read {path}: {error}") from None


def _upcast(tensor: Tensor) -> Tensor:
    return tensor.float() if tensor.is_floating_point() else tensor
