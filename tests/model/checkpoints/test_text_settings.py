"""Special ids, generation settings and chat templates of Hugging Face directories."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from model.checkpoint import CheckpointError
from model.checkpoints.text_settings import read_text_settings


def write(directory: Path, **files: dict[str, Any]) -> Path:
    for name, values in files.items():
        (directory / f"{name}.json").write_text(json.dumps(values))
    return directory


def test_nothing_said(tmp_path: Path) -> None:
    settings = read_text_settings(tmp_path, {})
    assert (settings.pad_id, settings.bos_id, settings.eos_ids) == (None, None, ())
    assert (settings.generation, settings.chat_template, settings.chat_tokens) == ({}, None, {})


@pytest.mark.parametrize(
    ("generation", "config", "eos"),
    [
        ({}, {"eos_token_id": 0}, (0,)),
        ({"eos_token_id": [3, 1]}, {"eos_token_id": 0}, (3, 1)),
        ({"eos_token_id": 4}, {}, (4,)),
    ],
)
def test_end_ids(
    tmp_path: Path, generation: dict[str, Any], config: dict[str, Any], eos: tuple[int, ...]
) -> None:
    directory = write(tmp_path, generation_config=generation)
    assert read_text_settings(directory, config).eos_ids == eos


@pytest.mark.parametrize(
    "ids",
    [
        {"eos_token_id": "3"},
        {"eos_token_id": [3, "1"]},
        {"bos_token_id": [1]},
        {"pad_token_id": 0.5},
    ],
)
def test_ids_that_are_none(tmp_path: Path, ids: dict[str, Any]) -> None:
    with pytest.raises(CheckpointError, match=r"_token_id is .*; it must be a token's id"):
        read_text_settings(tmp_path, ids)


def test_generation_settings_are_kept_by_name(tmp_path: Path) -> None:
    directory = write(
        tmp_path,
        generation_config={
            "_from_model_config": True,
            "transformers_version": "5.0.0",
            "do_sample": True,
            "temperature": 0.2,
            "top_k": None,
            "pad_token_id": 7,
            "decoder_start_token_id": 8,
            "forced_bos_token_id": 9,
        },
    )
    settings = read_text_settings(directory, {"bos_token_id": 0})
    assert settings.generation == {
        "do_sample": True,
        "temperature": 0.2,
        "forced_bos_token_id": 9,
    }
    assert (settings.pad_id, settings.bos_id, settings.decoder_start_id) == (7, 0, 8)


def test_chat_tokens_are_spelled_or_described(tmp_path: Path) -> None:
    directory = write(
        tmp_path,
        special_tokens_map={"bos_token": "<old>", "unk_token": "<unk>"},
        tokenizer_config={
            "bos_token": {"content": "<s>", "lstrip": False},
            "eos_token": "</s>",
            "pad_token": None,
        },
    )
    assert read_text_settings(directory, {}).chat_tokens == {
        "bos_token": "<s>",
        "eos_token": "</s>",
        "unk_token": "<unk>",
    }


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("{{ 1 }}", "{{ 1 }}"),
        ([{"name": "tools", "template": "a"}, {"name": "default", "template": "b"}], "b"),
        ([{"name": "tools", "template": "a"}], None),
        (None, None),
    ],
)
def test_the_template_among_the_settings(
    tmp_path: Path, template: Any, expected: str | None
) -> None:
    directory = write(tmp_path, tokenizer_config={"chat_template": template})
    assert read_text_settings(directory, {}).chat_template == expected


def test_a_file_of_its_own_comes_first(tmp_path: Path) -> None:
    write(tmp_path, tokenizer_config={"chat_template": "among"})
    (tmp_path / "chat_template.jinja").write_text("{{ 'ü' }}\n", encoding="utf-8")
    assert read_text_settings(tmp_path, {}).chat_template == "{{ 'ü' }}\n"


def test_a_template_that_is_no_text(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="chat_template"):
        read_text_settings(write(tmp_path, tokenizer_config={"chat_template": 3}), {})


def test_older_directories_have_the_rules_of_decoding_in_the_config(tmp_path: Path) -> None:
    stated = {"bad_words_ids": [[7]], "max_length": 60, "length_penalty": 2.0}
    config = {**stated, "num_beams": 4, "suppress_tokens": None}
    assert read_text_settings(tmp_path, config).generation == stated
    write(tmp_path, generation_config={"num_beams": 2})
    assert read_text_settings(tmp_path, config).generation == {"num_beams": 2}
