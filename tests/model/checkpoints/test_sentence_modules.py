"""What Sentence-Transformers writes beside an encoder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from model.checkpoint import CheckpointError
from model.checkpoints.sentence_modules import SentenceModules, read_sentence_modules
from model.config import Pooling, PoolingMode

MEAN = {"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False}


def write(
    directory: Path,
    kinds: tuple[str, ...] = ("Transformer", "Pooling", "Normalize"),
    pooling: dict[str, Any] | None = None,
    **files: object,
) -> Path:
    modules = [
        {
            "idx": index,
            "path": f"{index}_{kind}" if index else "",
            "type": f"sentence_transformers.models.{kind}",
        }
        for index, kind in enumerate(kinds)
    ]
    (directory / "modules.json").write_text(json.dumps(modules))
    if pooling is not None:
        (directory / "1_Pooling").mkdir()
        (directory / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    for name, values in files.items():
        (directory / f"{name}.json").write_text(json.dumps(values))
    return directory


@pytest.mark.parametrize(
    ("pooling", "mode"),
    [
        (MEAN, PoolingMode.MEAN),
        ({"pooling_mode_cls_token": True}, PoolingMode.CLS),
        ({"pooling_mode_max_tokens": True}, PoolingMode.MAX),
        ({"pooling_mode": "cls", "embedding_dimension": 4}, PoolingMode.CLS),
        ({"pooling_mode": ["mean"]}, PoolingMode.MEAN),
        ({"pooling_mode": "lasttoken"}, PoolingMode.LAST),
        ({"pooling_mode_lasttoken": True}, PoolingMode.LAST),
    ],
)
def test_modes(tmp_path: Path, pooling: dict[str, Any], mode: PoolingMode) -> None:
    modules = read_sentence_modules(write(tmp_path, pooling=pooling))
    assert modules.pooling == Pooling(mode, normalize=True)


def test_without_a_normalize_module(tmp_path: Path) -> None:
    modules = read_sentence_modules(write(tmp_path, ("Transformer", "Pooling"), MEAN))
    assert modules.pooling == Pooling(PoolingMode.MEAN, normalize=False)


def test_without_the_pooling_folder_nothing_says_how(tmp_path: Path) -> None:
    assert read_sentence_modules(write(tmp_path)).pooling is None


def test_without_any_file(tmp_path: Path) -> None:
    assert read_sentence_modules(tmp_path) == SentenceModules(folder=tmp_path)


def test_limits_and_prompts(tmp_path: Path) -> None:
    directory = write(
        tmp_path,
        pooling=MEAN,
        sentence_bert_config={"max_seq_length": 99, "do_lower_case": True},
        config_sentence_transformers={
            "prompts": {"query": "query: ", "document": ""},
            "default_prompt_name": "query",
        },
    )
    modules = read_sentence_modules(directory)
    assert (modules.max_input, modules.lowercase) == (99, True)
    assert modules.prompts == {"query": "query: ", "document": ""}
    assert modules.default_prompt == "query"


@pytest.mark.parametrize(
    ("kinds", "pooling", "message"),
    [
        (("Transformer", "Pooling", "Dense"), MEAN, "Transformer, Pooling, Dense"),
        (("Transformer", "Normalize", "Pooling"), MEAN, "in this order"),
        (("Transformer",), None, "lists Transformer;"),
        (("Transformer", "Pooling"), {"pooling_mode_weightedmean_tokens": True}, "weightedmean"),
        (("Transformer", "Pooling"), MEAN | {"pooling_mode_max_tokens": True}, r"mean \+ max"),
        (("Transformer", "Pooling"), {}, "pooling_mode is missing"),
        (("Transformer", "Pooling"), MEAN | {"include_prompt": False}, "include_prompt is False"),
    ],
)
def test_refusals(
    tmp_path: Path, kinds: tuple[str, ...], pooling: dict[str, Any] | None, message: str
) -> None:
    with pytest.raises(CheckpointError, match=message):
        read_sentence_modules(write(tmp_path, kinds, pooling))


@pytest.mark.parametrize("name", ["bert", "roberta", "distilbert", "xlm-roberta"])
def test_older_layouts(tmp_path: Path, name: str) -> None:
    modules = [
        {"path": "0_Transformer", "type": "sentence_transformers.models.Transformer"},
        {"path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
    ]
    write(tmp_path, pooling=MEAN, modules=modules)
    (tmp_path / "0_Transformer").mkdir()
    settings = tmp_path / "0_Transformer" / f"sentence_{name}_config.json"
    settings.write_text('{"max_seq_length": 33}')
    read = read_sentence_modules(tmp_path)
    assert (read.folder, read.max_input) == (tmp_path / "0_Transformer", 33)
    assert read.pooling == Pooling(PoolingMode.MEAN, normalize=False)


@pytest.mark.parametrize("path", ["..", "../elsewhere", "/etc", "1_Pooling/.."])
@pytest.mark.parametrize("index", [0, 1])
def test_folders_elsewhere(tmp_path: Path, index: int, path: str) -> None:
    kinds = ("Transformer", "Pooling")
    modules = [{"path": "", "type": f"sentence_transformers.models.{kind}"} for kind in kinds]
    modules[index]["path"] = path
    with pytest.raises(CheckpointError, match="names a folder elsewhere"):
        read_sentence_modules(write(tmp_path, modules=modules))


def test_modules_of_custom_code(tmp_path: Path) -> None:
    kinds = ("custom_st.Transformer", "sentence_transformers.models.Pooling")
    write(tmp_path, modules=[{"path": "", "type": kind} for kind in kinds])
    with pytest.raises(CheckpointError, match=r"lists custom_st\.Transformer, Pooling"):
        read_sentence_modules(tmp_path)


def test_a_default_prompt_that_is_none(tmp_path: Path) -> None:
    directory = write(
        tmp_path, pooling=MEAN, config_sentence_transformers={"default_prompt_name": "query"}
    )
    with pytest.raises(CheckpointError, match=r"default_prompt_name 'query'.*there are none"):
        read_sentence_modules(directory)


@pytest.mark.parametrize("prompts", [["query: "], {"query": 3}, "query: "])
def test_prompts_that_are_none(tmp_path: Path, prompts: object) -> None:
    write(tmp_path, pooling=MEAN, config_sentence_transformers={"prompts": prompts})
    with pytest.raises(CheckpointError, match=r"prompts .* must be texts by name"):
        read_sentence_modules(tmp_path)


def test_modules_that_are_no_list(tmp_path: Path) -> None:
    (tmp_path / "modules.json").write_text("3")
    with pytest.raises(CheckpointError, match=r"modules\.json is not a list"):
        read_sentence_modules(tmp_path)
