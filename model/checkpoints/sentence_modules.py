"""What Sentence-Transformers writes beside an encoder: pooling, length limit and prompts.

modules.json lists what a text goes through. formerd does a Transformer, then a Pooling, then
perhaps a Normalize; anything else is refused by name. Each module has a folder of its own; that of
the Transformer is the checkpoint's own directory, or `0_Transformer` in older ones.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from model.checkpoint import CheckpointError
from model.checkpoints.files import read_json, read_optional_json
from model.config import Pooling, PoolingMode

MODULES_FILE = "modules.json"
_SUPPORTED = (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"])
_PUBLISHER = "sentence_transformers."  # before the name of each module's class
_TRANSFORMER_FILES = tuple(  # the name used to follow the family
    f"sentence_{family}_config.json" for family in ("bert", "roberta", "distilbert", "xlm-roberta")
)
_LEGACY_MODES = {  # a switch for each mode, before there was `pooling_mode`
    "pooling_mode_cls_token": "cls",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}


@dataclass(frozen=True)
class SentenceModules:
    """What the files say; the defaults where there are none.

    Attributes:
        folder: of the transformer's files.
        pooling: None where nothing says how: whoever exports has to choose.
        max_input: in tokens, special ones included.
        lowercase: whether text is lowercased before the tokenizer sees it.
    """

    folder: Path
    pooling: Pooling | None = None
    max_input: int | None = None
    lowercase: bool = False
    prompts: dict[str, str] = field(default_factory=dict)
    default_prompt: str | None = None


def read_sentence_modules(directory: Path) -> SentenceModules:
    """Reads the files around an encoder.

    Raises:
        CheckpointError: the modules, or their settings, are none that formerd does.
    """
    folder = transformer_folder(directory)
    transformer = next(
        filter(None, (read_optional_json(folder / f) for f in _TRANSFORMER_FILES)), {}
    )
    prompts, default_prompt = _read_prompts(directory)
    return SentenceModules(
        folder=folder,
        pooling=_read_pooling(directory),
        max_input=transformer.get("max_seq_length"),
        lowercase=bool(transformer.get("do_lower_case")),
        prompts=prompts,
        default_prompt=default_prompt,
    )


def transformer_folder(directory: Path) -> Path:
    """Where the transformer's files are: the first module's folder, else the directory itself.

    Raises:
        CheckpointError: the modules are none that formerd does, or a folder is elsewhere.
    """
    modules = _read_modules(directory)
    return _folder(directory, modules[0]) if modules else directory


def _read_prompts(directory: Path) -> tuple[dict[str, str], str | None]:
    """The prompts by name, and which of them is the default."""
    library = read_optional_json(directory / "config_sentence_transformers.json")
    prompts = library.get("prompts") or {}
    default_prompt = library.get("default_prompt_name")
    if not isinstance(prompts, dict) or not all(isinstance(p, str) for p in prompts.values()):
        raise CheckpointError(
            f"config_sentence_transformers.json has prompts {prompts!r}; it must be texts by name"
        )
    if default_prompt is not None and default_prompt not in prompts:
        raise CheckpointError(
            f"config_sentence_transformers.json has default_prompt_name {default_prompt!r}, "
            f"which is none of its prompts: {', '.join(sorted(prompts)) or 'there are none'}"
        )
    return prompts, default_prompt


def _read_pooling(directory: Path) -> Pooling | None:
    modules = _read_modules(directory)
    if not modules:
        return None
    path = _folder(directory, modules[1]) / "config.json"
    if not path.exists():
        return None
    return Pooling(mode=_read_mode(read_json(path), path), normalize=len(modules) == 3)


def _read_modules(directory: Path) -> list[dict[str, Any]]:
    """The modules in their order, which formerd does; none where there is no list."""
    path = directory / MODULES_FILE
    if not path.exists():
        return []
    modules = _read_list(path)
    types = [str(module.get("type")) for module in modules]
    kinds = [kind.rpartition(".")[2] if kind.startswith(_PUBLISHER) else kind for kind in types]
    if kinds not in _SUPPORTED:
        raise CheckpointError(
            f"{directory.name}/{MODULES_FILE} lists {', '.join(kinds)}; "
            "supported are Transformer, Pooling and optionally Normalize, in this order"
        )
    return modules


def _folder(directory: Path, module: dict[str, Any]) -> Path:
    path = str(module.get("path", ""))
    if path and (Path(path).name != path or path == ".."):
        raise CheckpointError(f"{directory.name}/{MODULES_FILE} names a folder elsewhere: {path}")
    return directory / path


def _read_mode(values: dict[str, Any], path: Path) -> PoolingMode:
    where = f"{path.parent.name}/{path.name}"
    if values.get("include_prompt") is False:
        raise CheckpointError(f"{where}: include_prompt is False, supported is True")
    modes = values.get("pooling_mode")
    if modes is None:
        modes = [mode for switch, mode in _LEGACY_MODES.items() if values.get(switch)]
    if isinstance(modes, str):
        modes = [modes]
    if len(modes) != 1 or modes[0] not in list(PoolingMode):
        raise CheckpointError(
            f"{where}: pooling_mode is {' + '.join(modes) or 'missing'}; "
            f"supported is one of {', '.join(PoolingMode)}"
        )
    return PoolingMode(modes[0])


def _read_list(path: Path) -> list[dict[str, Any]]:
    try:
        modules = json.loads(path.read_bytes())
        return [dict(module) for module in modules]
    except (OSError, ValueError, TypeError) as error:
        raise CheckpointError(f"{path} is not a list of modules: {error}") from None
