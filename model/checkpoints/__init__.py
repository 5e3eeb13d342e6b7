"""Checkpoints of every family, read into one form.

A family is a table (its configuration to ours, its tensor names to ours), never a subclass. Nothing
here unpickles, and nothing runs code that comes with a checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from model.checkpoint import Checkpoint, CheckpointError
from model.checkpoints.files import read_json
from model.checkpoints.native import MODEL_TYPE as NATIVE
from model.checkpoints.native import load_native
from model.config import ConfigError

# config.json's model_type -> how to read the directory, given the content of its config.json.
_FAMILIES: dict[str, Callable[[Path, dict[str, Any]], Checkpoint]] = {
    NATIVE: load_native,
}


def load_checkpoint(path: Path) -> Checkpoint:
    """Reads the directory at `path`.

    Raises:
        CheckpointError: there is nothing to read, it is of no known family, it asks for something
            that formerd does not do, or its tensors do not fit its configuration.
    """
    try:
        return _load_directory(path)
    except ConfigError as error:
        raise CheckpointError(f"{path.name}: {error}") from error


def _load_directory(directory: Path) -> Checkpoint:
    if not directory.exists():
        raise CheckpointError(f"{directory} does not exist")
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
