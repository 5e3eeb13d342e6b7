"""What a Hugging Face directory says about text: special ids, generation settings, chat."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from model.checkpoint import CheckpointError
from model.checkpoints.files import read_json, read_optional_json
from model.decoding_rules import SETTINGS

_GENERATION_FILE = "generation_config.json"
_NOT_SETTINGS = ("_from_model_config", "transformers_version")
_OWN_FIELDS = ("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id")
_CHAT_TOKENS = ("bos_token", "eos_token", "pad_token", "unk_token")


@dataclass(frozen=True)
class TextSettings:
    """The fields of these names in `Checkpoint`."""

    pad_id: int | None
    bos_id: int | None
    eos_ids: tuple[int, ...]
    decoder_start_id: int | None
    generation: dict[str, Any]
    chat_template: str | None
    chat_tokens: dict[str, str]


def read_text_settings(directory: Path, config: dict[str, Any]) -> TextSettings:
    """Reads generation_config.json and tokenizer_config.json beside a config.json.

    Ids of the generation configuration come first, as in transformers: what ends a chat is known
    there, not to the model. Directories from before it existed have the settings in config.json.
    """
    generation = _read_generation(directory, config)
    tokenizer = read_optional_json(directory / "special_tokens_map.json") | read_optional_json(
        directory / "tokenizer_config.json"
    )
    ids = {name: _first(generation.get(name), config.get(name)) for name in _OWN_FIELDS}
    _check_ids(ids, directory.name)
    eos = ids["eos_token_id"]
    return TextSettings(
        pad_id=ids["pad_token_id"],
        bos_id=ids["bos_token_id"],
        eos_ids=() if eos is None else tuple(eos) if isinstance(eos, list) else (eos,),
        decoder_start_id=ids["decoder_start_token_id"],
        generation={
            name: value
            for name, value in generation.items()
            if value is not None and name not in (*_NOT_SETTINGS, *_OWN_FIELDS)
        },
        chat_template=_read_template(directory, tokenizer),
        chat_tokens={
            name: _spelling(tokenizer[name]) for name in _CHAT_TOKENS if tokenizer.get(name)
        },
    )


def _read_generation(directory: Path, config: dict[str, Any]) -> dict[str, Any]:
    if (directory / _GENERATION_FILE).exists():
        return read_json(directory / _GENERATION_FILE)
    return {name: config[name] for name in SETTINGS if name in config}


def _check_ids(ids: dict[str, Any], where: str) -> None:
    for name, value in ids.items():
        several = value if isinstance(value, list) and name == "eos_token_id" else [value]
        if not all(one is None or type(one) is int for one in several):
            raise CheckpointError(f"{where}: {name} is {value!r}; it must be a token's id")


def _first(*values: Any) -> Any:
    return next((value for value in values if value is not None), None)


def _read_template(directory: Path, tokenizer: dict[str, Any]) -> str | None:
    """The template of a file of its own, else the one among the tokenizer's settings."""
    path = directory / "chat_template.jinja"
    if path.exists():
        return path.read_text(encoding="utf-8")
    template = tokenizer.get("chat_template")
    if isinstance(template, list):  # several, by name
        template = {item["name"]: item["template"] for item in template}.get("default")
    if template is not None and not isinstance(template, str):
        raise CheckpointError(f"{directory.name}/tokenizer_config.json: chat_template is no text")
    return template


def _spelling(token: str | dict[str, Any]) -> str:
    """A token's text; some files describe the token instead of spelling it."""
    return token if isinstance(token, str) else str(token["content"])
