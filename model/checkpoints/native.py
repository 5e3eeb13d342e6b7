"""The native format: what our own training writes; it can express every configuration.

config.json         model_type, the transformer's configuration, and what else a checkpoint says
model.safetensors   tensors under our own parameter names; a tied parameter once
tokenizer.json      and target_tokenizer.json where the target has its own
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from model.checkpoint import Checkpoint, CheckpointError
from model.checkpoints.files import WEIGHTS_FILE, read_weights
from model.checkpoints.tokenizer_files import (
    TARGET_TOKENIZER_FILE,
    TOKENIZER_FILE,
    read_tokenizers,
)
from model.config import Pooling, PoolingMode, TransformerConfig

MODEL_TYPE = "formerd"

# Fields of a checkpoint that config.json holds as they are, each with its JSON type.
_PLAIN_FIELDS: dict[str, type] = {
    "max_input": int,
    "pad_id": int,
    "bos_id": int,
    "eos_ids": list,
    "decoder_start_id": int,
    "generation": dict,
    "prompts": dict,
    "default_prompt": str,
    "chat_template": str,
    "chat_tokens": dict,
}


def save_native(
    directory: Path, checkpoint: Checkpoint, dtype: torch.dtype = torch.float32
) -> None:
    """Writes a checkpoint of any family as a native one, its tensors stored as `dtype`."""
    directory.mkdir(parents=True, exist_ok=True)
    values: dict[str, Any] = {
        "model_type": MODEL_TYPE,
        "transformer": checkpoint.config.to_json(),
        "pooling": asdict(checkpoint.pooling) if checkpoint.pooling else None,
    }
    values |= {name: getattr(checkpoint, name) for name in _PLAIN_FIELDS}
    text = json.dumps(values, indent=2, ensure_ascii=False)
    (directory / "config.json").write_text(text + "\n", encoding="utf-8")
    tensors = {
        name: tensor.detach().to(dtype).contiguous() for name, tensor in checkpoint.tensors.items()
    }
    save_file(tensors, directory / WEIGHTS_FILE, metadata={"format": "pt"})
    (directory / TOKENIZER_FILE).write_bytes(checkpoint.tokenizer_json)
    if checkpoint.target_tokenizer_json is not None:
        (directory / TARGET_TOKENIZER_FILE).write_bytes(checkpoint.target_tokenizer_json)


def load_native(directory: Path, values: dict[str, Any]) -> Checkpoint:
    """Reads what `save_native` wrote; `values` is the content of its config.json.

    Raises:
        CheckpointError: a field is unknown, missing or of the wrong type, or a file is missing.
        ConfigError: the transformer's configuration cannot be built.
    """
    where = f"{directory.name}/config.json"
    _check_fields(values, where)
    config = TransformerConfig.from_json(values["transformer"])
    tensors = read_weights(directory)
    tokenizer, target_tokenizer = read_tokenizers(directory)
    plain = {name: values[name] for name in _PLAIN_FIELDS if values.get(name) is not None}
    plain["eos_ids"] = tuple(plain.get("eos_ids", ()))
    return Checkpoint(
        family="native",
        config=config,
        tensors=tensors,
        sources={name: (name,) for name in tensors},
        tokenizer_json=tokenizer,
        target_tokenizer_json=target_tokenizer,
        pooling=_read_pooling(values.get("pooling"), where),
        **plain,
    )


def _check_fields(values: dict[str, Any], where: str) -> None:
    known = {"model_type", "transformer", "pooling", *_PLAIN_FIELDS}
    if unknown := sorted(set(values) - known):
        raise CheckpointError(f"{where} has unknown fields: {', '.join(unknown)}")
    wrong = [
        f"{name} is {value!r} and must be of type {kind.__name__}"
        for name, kind in {"transformer": dict, **_PLAIN_FIELDS}.items()
        if (value := values.get(name)) is not None and not isinstance(value, kind)
    ]
    wrong += [f"{name} is missing" for name in ("transformer", "max_input") if not values.get(name)]
    if wrong:
        raise CheckpointError(f"{where}: {'; '.join(wrong)}")


def _read_pooling(values: Any, where: str) -> Pooling | None:
    if values is None:
        return None
    try:
        return Pooling(mode=PoolingMode(values["mode"]), normalize=bool(values["normalize"]))
    except (KeyError, TypeError, ValueError):
        raise CheckpointError(
            f"{where}: pooling is {values!r}; it must hold mode ({', '.join(PoolingMode)}) "
            "and normalize (true or false)"
        ) from None
