"""Directories as Hugging Face's libraries write them, for every family alike."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from model.checkpoint import Checkpoint, CheckpointError
from model.checkpoints.family import Family, fit
from model.checkpoints.files import read_optional_json, read_weights
from model.checkpoints.sentence_modules import MODULES_FILE, SentenceModules, read_sentence_modules
from model.checkpoints.text_settings import read_text_settings
from model.checkpoints.tokenizer_files import read_tokenizer
from model.config import Kind, TransformerConfig


def load_hugging_face(directory: Path, values: dict[str, Any], family: Family) -> Checkpoint:
    """Reads a directory, with its Sentence-Transformers modules where it has them.

    `values` is the content of the transformer's config.json.

    Raises:
        CheckpointError, ConfigError: as `load_checkpoint`.
    """
    config = family.configure(values, f"{directory.name}/config.json")
    modules = read_sentence_modules(directory)
    if config.kind is Kind.ENCODER:
        return _load_encoder(modules, values, family, config)
    if (directory / MODULES_FILE).exists():
        raise CheckpointError(
            f"{directory.name}/{MODULES_FILE} makes embeddings of a {config.kind}, "
            "which is not supported; supported are embeddings of an encoder"
        )
    return _load_decoder(directory, values, family, config)


def _load_encoder(
    modules: SentenceModules, values: dict[str, Any], family: Family, config: TransformerConfig
) -> Checkpoint:
    fitted = fit(family.tensors, config, read_weights(modules.folder))
    return Checkpoint(
        family=values["model_type"],
        config=config,
        tensors=fitted.tensors,
        sources=fitted.sources,
        unused=fitted.unused,
        tokenizer_json=read_tokenizer(modules.folder, lowercase=modules.lowercase),
        max_input=_longest_input(config, modules),
        pooling=modules.pooling,
        pad_id=values.get("pad_token_id"),
        prompts=modules.prompts,
        default_prompt=modules.default_prompt,
    )


def _load_decoder(
    directory: Path, values: dict[str, Any], family: Family, config: TransformerConfig
) -> Checkpoint:
    fitted = fit(family.tensors, config, read_weights(directory))
    settings = read_text_settings(directory, values)
    return Checkpoint(
        family=values["model_type"],
        config=config,
        tensors=fitted.tensors,
        sources=fitted.sources,
        unused=fitted.unused,
        tokenizer_json=read_tokenizer(directory),
        max_input=config.max_positions,
        pad_id=settings.pad_id,
        bos_id=settings.bos_id,
        eos_ids=settings.eos_ids,
        generation=settings.generation,
        chat_template=settings.chat_template,
        chat_tokens=settings.chat_tokens,
    )


def _longest_input(config: TransformerConfig, modules: SentenceModules) -> int:
    """The least of the limits that mean one.

    The truncation in tokenizer.json is not among them: it is what the last caller set.
    """
    tokenizer = read_optional_json(modules.folder / "tokenizer_config.json")
    stated = {
        "max_seq_length": modules.max_input,
        "model_max_length": tokenizer.get("model_max_length"),
    }
    limits = {name: limit for name, limit in stated.items() if limit is not None}
    for name, limit in limits.items():
        if not isinstance(limit, int | float) or not limit >= 1:
            raise CheckpointError(f"{name} is {limit!r}; it must be a number of tokens")
    return int(min((config.max_positions, *limits.values())))
