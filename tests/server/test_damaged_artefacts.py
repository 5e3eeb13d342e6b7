"""BAD-01: a damaged artefact is refused in one line that names the file, whatever the digests."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from server.artefact import ArtefactError, load_artefact
from server.session import open_session
from tests.artefacts import decoder_artefact, reseal
from tests.damages import DAMAGES, Damage


@pytest.fixture
def artefact(tmp_path: Path) -> Path:
    return shutil.copytree(decoder_artefact(), tmp_path / "decoder")


@pytest.mark.parametrize("damage", DAMAGES, ids=[damage.name for damage in DAMAGES])
def test_damage_is_refused(artefact: Path, damage: Damage) -> None:
    damage.do(artefact / damage.file)
    with pytest.raises(ArtefactError, match=damage.file) as caught:
        load_artefact(artefact)
    assert "\n" not in str(caught.value)


_SPOILED = [damage for damage in DAMAGES if damage.spoils_graph]


@pytest.mark.parametrize("damage", _SPOILED, ids=[damage.name for damage in _SPOILED])
def test_damage_is_refused_though_the_digests_fit(artefact: Path, damage: Damage) -> None:
    damage.do(artefact / damage.file)
    reseal(artefact)
    verified = load_artefact(artefact)
    with pytest.raises(ArtefactError, match=r"decoder\.onnx") as caught:
        open_session(verified, "decoder")
    assert "\n" not in str(caught.value)
