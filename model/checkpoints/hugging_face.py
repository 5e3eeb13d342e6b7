"""Directories as Hugging Face's libraries write them, for every family alike."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from model.checkpoint import Checkpoint, CheckpointError
from model.checkpoints.family import Family, TensorTable, fit
from model.checkpoints.files import read_optional_json, read_weights
from model.checkpoints.sentence_modules import MODULES_FILE, SentenceModules, read_sentence_modules
from model.checkpoints.text_settings import TextSettings, read_text_settings
from model.checkpoints.tokenizer_files import read_tokenizer, read_tokenizers
from model.config import Kind, TransformerConfig
from model.decoding_rules import DecodingRules


def load_hugging_face(directory: Path, values: dict[str, Any], family: Family) -> Checkpoint:
    """Reads a directory, with its Sentence-Transformers modules where it has them.

    Those make an encoder of a decoder, too: its blocks without the output head, still causal.

    `values` is the content of the transformer's config.json.

    Raises:
        CheckpointError, ConfigError: as `load_checkpoint`.
    """
    config = family.configure(values, f"{directory.name}/config.json")
    modules = read_sentence_modules(directory)
    if config.kind is Kind.ENCODER:
        return _load_encoder(modules, values, family.tensors, config)
    has_modules = (directory / MODULES_FILE).exists()
    if config.kind is Kind.ENCODER_DECODER:
        if has_modules:
            raise CheckpointError(
                f"{directory.name}/{MODULES_FILE} makes embeddings of an encoder-decoder, "
                "which is not supported; without it, they are the mean of the encoder's states"
            )
        return _load_encoder_decoder(directory, values, family, config)
    if has_modules:
        return _load_encoder(
            modules, values, family.tensors.of_causal_encoder(), config.as_causal_encoder()
        )
    return _load_decoder(directory, values, family, config)


def _load_encoder(
    modules: SentenceModules, values: dict[str, Any], table: TensorTable, config: TransformerConfig
) -> Checkpoint:
    fitted = fit(table, config, read_weights(modules.folder))
    return Checkpoint(
        family=values["model_type"],
        config=config,
        tensors=fitted.tensors,
        sources=fitted.sources,
        unused=fitted.unused,
        tokenizer_json=read_tokenizer(modules.folder, lowercase=modules.lowercase),
        max_input=_longest_input(config, modules.folder, modules.max_input),
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


def _load_encoder_decoder(
    directory: Path, values: dict[str, Any], family: Family, config: TransformerConfig
) -> Checkpoint:
    fitted = fit(family.table(config), config, read_weights(directory))
    settings = read_text_settings(directory, values)
    tokenizer, target_tokenizer = read_tokenizers(directory)
    same = target_tokenizer == tokenizer and not config.target_vocab_size
    checkpoint = Checkpoint(
        family=values["model_type"],
        config=fitted.config,
        tensors=fitted.tensors,
        sources=fitted.sources,
        unused=fitted.unused,
        tokenizer_json=tokenizer,
        target_tokenizer_json=None if same else target_tokenizer,
        max_input=_longest_input(config, directory),
        pad_id=settings.pad_id,
        bos_id=settings.bos_id,
        eos_ids=settings.eos_ids,
        decoder_start_id=_decoder_start(settings, directory.name),
        generation=_target_limits(settings.generation),
    )
    _check_target_ids(checkpoint, directory.name)
    return checkpoint


def _decoder_start(settings: TextSettings, where: str) -> int:
    """What every target begins with."""
    start = settings.bos_id if settings.decoder_start_id is None else settings.decoder_start_id
    if start is None:
        raise CheckpointError(f"{where} has no decoder_start_token_id, nor a bos_token_id")
    return start


def _target_limits(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings with a limit of new tokens, where one of all tokens of a target is stated."""
    limit = settings.get("max_length")
    if type(limit) is not int or limit <= 1 or "max_new_tokens" in settings:
        return settings
    return settings | {"max_new_tokens": limit - 1}  # the first is the start token


def _check_target_ids(checkpoint: Checkpoint, where: str) -> None:
    """Refuses ids that the model has no row for.

    Raises:
        CheckpointError: naming the id.
        ConfigError: as `DecodingRules.from_settings`.
    """
    rules = DecodingRules.from_settings(checkpoint.generation, checkpoint.eos_ids)
    named = {
        "decoder_start_token_id": (checkpoint.decoder_start_id,),
        "eos_token_id": checkpoint.eos_ids,
        "forced_bos_token_id": (rules.first_id,),
        "forced_eos_token_id": (rules.last_id,),
        "bad_words_ids or suppress_tokens": rules.forbidden_ids,
    }
    size = checkpoint.config.decoder_vocab_size
    for name, ids in named.items():
        if beyond := [each for each in ids if each is not None and not 0 <= each < size]:
            raise CheckpointError(
                f"{where}: {name} is {beyond[0]}; the target's vocabulary has {size} entries"
            )


def _longest_input(
    config: TransformerConfig, folder: Path, max_seq_length: int | None = None
) -> int:
    """The least of the limits that mean one.

    The truncation in tokenizer.json is not among them: it is what the last caller set.
    """
    tokenizer = read_optional_json(folder / "tokenizer_config.json")
    stated = {
        "max_seq_length": max_seq_length,
        "model_max_length": tokenizer.get("model_max_length"),
    }
    limits = {name: limit for name, limit in stated.items() if limit is not None}
    for name, limit in limits.items():
        if not isinstance(limit, int | float) or not limit >= 1:
            raise CheckpointError(f"{name} is {limit!r}; it must be a number of tokens")
    return int(min((config.max_positions, *limits.values())))
