"""BAD-01: what becomes of an artefact's files on their way, each by itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import onnx

_POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:0123\nsize 540157184\n"


@dataclass(frozen=True)
class Damage:
    """Something that happens to one file of a decoder's artefact.

    Attributes:
        spoils_graph: whether a graph cannot be opened then, though the digests fit.
    """

    name: str
    file: str
    do: Callable[[Path], object]
    spoils_graph: bool = True


def _keep(part: float) -> Callable[[Path], object]:
    def cut(path: Path) -> None:
        content = path.read_bytes()
        path.write_bytes(content[: int(part * len(content))])

    return cut


def _point(path: Path) -> None:
    path.write_bytes(_POINTER)


def _use_a_later_opset(path: Path) -> None:
    model = onnx.load(path, load_external_data=False)
    for each in model.opset_import:
        each.version = 99 if each.domain == "" else each.version
    onnx.save(model, path)


def _spell_otherwise(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b"<pad>", b"<pat>"))


DAMAGES = (
    Damage("an empty graph", "decoder.onnx", _keep(0)),
    Damage("half of a graph", "decoder.onnx", _keep(0.5)),
    Damage("a pointer for a graph", "decoder.onnx", _point),
    Damage("another operator set", "decoder.onnx", _use_a_later_opset),
    Damage("no weights", "decoder.data", Path.unlink, spoils_graph=False),
    Damage("an empty weights file", "decoder.data", _keep(0)),
    Damage("half of the weights", "decoder.data", _keep(0.5)),
    Damage("a pointer for the weights", "decoder.data", _point),
    Damage("no mover", "mover.onnx", Path.unlink, spoils_graph=False),
    Damage("no tokenizer", "tokenizer.json", Path.unlink, spoils_graph=False),
    Damage("another tokenizer", "tokenizer.json", _spell_otherwise, spoils_graph=False),
)
