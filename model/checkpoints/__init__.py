"""Checkpoints of every family, read into one form.

A family is a table (its configuration to ours, its tensor names to ours), never a subclass. Nothing
here unpickles, and nothing runs code that comes with a checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from model.checkpoint import Checkpoint, CheckpointError
from model.checkpoints.bert import load_bert
from model.checkpoints.files import read_json
from model.checkpoints.gguf_file import load_gguf
from model.checkpoints.llama import load_llama
from model.checkpoints.native import MODEL_TYPE as NATIVE
from model.checkpoints.native import load_native
from model.typed_fields import ConfigError

# config.json's model_type -> how to read the directory, given the content of its config.json.
_FAMILIES: dict[str, Callable[[Path, dict[str, Any]], Checkpoint]] = {
    "bert": load_bert,
    "llama": load_llama,
    NATIVE: load_native,
}


def load_checkpoint(path: Path) -> Checkpoint:
    """Reads a directory with a config.json, or a GGUF file (alone in its directory or named).

    Raises:
        CheckpointError: there is nothing to read, it is of no known family, it asks for something
            that formerd does not do, or its tensors do not fit its configuration.
    """
    if not path.exists():
        raise CheckpointError(f"{path} does not exist")
    try:
        if path.is_file():
            return _load_file(path)
        return _load_directory(path)
    except ConfigError as error:
        raise CheckpointError(f"{path.name}: {error}") from error


def _load_file(path: Path) -> Checkpoint:
    if path.suffix != ".gguf":
        raise CheckpointError(f"{path} is neither a directory nor a .gguf file")
    return load_gguf(path)


def _load_directory(directory: Path) -> Checkpoint:
    if not (directory / "config.json").exists():
        return _load_file(_only_gguf(directory))
    values = read_json(directory / "config.json")
    if "auto_map" in values:
        raise CheckpointError(
            f"{directory.name}/config.json names custom code (auto_map), which is never run"
        )
    family = values.get("model_type")
    if family not in _FAMILIES:
        raise CheckpointError(
            f"{directory.name}/config.json has model_type {family!r}; "
            f"supported are {', '.join(sorted(_FAMILIES))}"
        )
    return _FAMILIES[family](directory, values)


def _only_gguf(directory: Path) -> Path:
    files = sorted(directory.glob("*.gguf"))
    if not files:
        raise CheckpointError(f"{directory} holds neither a config.json nor a .gguf file")
    if len(files) > 1:
        names = ", ".join(file.name for file in files)
        raise CheckpointError(f"{directory} holds several .gguf files, name one: {names}")
    return files[0]
