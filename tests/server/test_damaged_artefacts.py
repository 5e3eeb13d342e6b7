"""BAD-01: a damaged artefact is refused in one line that names the file, whatever the digests."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest

from server.artefact import ArtefactError, load_artefact
from server.session import open_session
from tests.artefacts import decoder_artefact, reseal

_POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:0123\nsize 540157184\n"


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


_DAMAGES: list[tuple[str, str, Callable[[Path], object]]] = [
    ("an empty graph", "decoder.onnx", _keep(0)),
    ("half of a graph", "decoder.onnx", _keep(0.5)),
    ("a pointer for a graph", "decoder.onnx", _point),
    ("another operator set", "decoder.onnx", _use_a_later_opset),
    ("no weights", "decoder.data", Path.unlink),
    ("an empty weights file", "decoder.data", _keep(0)),
    ("half of the weights", "decoder.data", _keep(0.5)),
    ("a pointer for the weights", "decoder.data", _point),
    ("no mover", "mover.onnx", Path.unlink),
    ("no tokenizer", "tokenizer.json", Path.unlink),
]


@pytest.fixture
def artefact(tmp_path: Path) -> Path:
    return shutil.copytree(decoder_artefact(), tmp_path / "decoder")


@pytest.mark.parametrize(
    ("file", "damage"),
    [(file, damage) for _, file, damage in _DAMAGES],
    ids=[name for name, _, _ in _DAMAGES],
)
def test_damage_is_refused(artefact: Path, file: str, damage: Callable[[Path], object]) -> None:
    damage(artefact / file)
    with pytest.raises(ArtefactError, match=file) as caught:
        load_artefact(artefact)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("file", "damage"),
    [(file, damage) for _, file, damage in _DAMAGES if damage is not Path.unlink],
    ids=[name for name, _, damage in _DAMAGES if damage is not Path.unlink],
)
def test_damage_is_refused_though_the_digests_fit(
    artefact: Path, file: str, damage: Callable[[Path], object]
) -> None:
    damage(artefact / file)
    reseal(artefact)
    verified = load_artefact(artefact)
    with pytest.raises(ArtefactError, match=r"decoder\.onnx") as caught:
        open_session(verified, "decoder")
    assert "\n" not in str(caught.value)
