"""Checkpoints of every family, read into one form.

A family is a table (its configuration to ours, its tensor names to ours), never a subclass. Nothing
here unpickles, and nothing runs code that comes with a checkpoint.
"""

from __future__ import annotations

from pathlib import Path

from model.checkpoint import Checkpoint, CheckpointError
from model.checkpoints import (
    bart,
    bert,
    distilbert,
    gpt2,
    llama,
    marian,
    mistral,
    native,
    qwen2,
    roberta,
    t5,
)
from model.checkpoints.family import Family
from model.checkpoints.files import read_json
from model.checkpoints.gguf_file import load_gguf
from model.checkpoints.hugging_face import load_hugging_face
from model.checkpoints.native import load_native
from model.checkpoints.sentence_modules import transformer_folder
from model.checkpoints.tokenizer_files import check_vocabularies
from model.typed_fields import ConfigError

# By the model_type of config.json.
_FAMILIES: dict[str, Family] = {
    "bart": Family(bart.TENSORS, bart.configure),
    "bert": Family(bert.TENSORS, bert.configure),
    "distilbert": Family(distilbert.TENSORS, distilbert.configure),
    "gpt2": Family(gpt2.TENSORS, gpt2.configure),
    "llama": Family(llama.TENSORS, llama.configure),
    "marian": Family(marian.TENSORS, marian.configure, marian.TWO_VOCABULARIES),
    "mistral": Family(llama.TENSORS, mistral.configure),
    "qwen2": Family(llama.TENSORS, qwen2.configure),
    "roberta": Family(roberta.TENSORS, roberta.configure),
    "t5": Family(t5.TENSORS, t5.configure),
    "xlm-roberta": Family(roberta.TENSORS, roberta.configure),
}
_SUPPORTED = ", ".join(sorted({*_FAMILIES, native.MODEL_TYPE}))


def load_checkpoint(path: Path) -> Checkpoint:
    """Reads a directory with a config.json, or a GGUF file (alone in its directory or named).

    Raises:
        CheckpointError: there is nothing to read, it is of no known family, it asks for something
            that formerd does not do, or its tensors or its tokenizer do not fit its configuration.
    """
    if not path.exists():
        raise CheckpointError(f"{path} does not exist")
    try:
        checkpoint = _load_file(path) if path.is_file() else _load_directory(path)
    except ConfigError as error:
        raise CheckpointError(f"{path.name}: {error}") from error
    check_vocabularies(checkpoint)
    return checkpoint


def _load_file(path: Path) -> Checkpoint:
    if path.suffix != ".gguf":
        raise CheckpointError(f"{path} is neither a directory nor a .gguf file")
    return load_gguf(path)


def _load_directory(directory: Path) -> Checkpoint:
    path = transformer_folder(directory) / "config.json"
    if not path.exists():
        return _load_file(_only_gguf(directory))
    values = read_json(path)
    where = path.relative_to(directory.parent)
    if "auto_map" in values:
        raise CheckpointError(f"{where} names custom code (auto_map), which is never run")
    model_type = values.get("model_type")
    if model_type == native.MODEL_TYPE:
        return load_native(directory, values)
    if not isinstance(model_type, str) or model_type not in _FAMILIES:
        raise CheckpointError(f"{where} has model_type {model_type!r}; supported are {_SUPPORTED}")
    return load_hugging_face(directory, values, _FAMILIES[model_type])


def _only_gguf(directory: Path) -> Path:
    files = sorted(directory.glob("*.gguf"))
    if not files:
        raise CheckpointError(f"{directory} holds neither a config.json nor a .gguf file")
    if len(files) > 1:
        names = ", ".join(file.name for file in files)
        raise CheckpointError(f"{directory} holds several .gguf files, name one: {names}")
    return files[0]
