"""When an artefact is built, and when the one that is there will do."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from launch import artefact
from launch.artefact import BuildFailed, built_artefact
from tests.artefacts import encoder_artefact
from tests.checkpoints import write_encoder


class Builds:
    """Stands for the command: copies the artefact that it would have built, or fails."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.exit_code = 0

    def run(
        self, command: list[str], *, cwd: Path, check: bool
    ) -> subprocess.CompletedProcess[bytes]:
        output = Path(command[command.index("--output") + 1])
        self.names.append(output.name)
        if not self.exit_code:
            shutil.copytree(encoder_artefact(), output, dirs_exist_ok=True)
        return subprocess.CompletedProcess(command, self.exit_code)


@pytest.fixture
def builds(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Builds:
    builds = Builds()
    monkeypatch.setattr(artefact, "ARTEFACTS", tmp_path / "artefacts")
    monkeypatch.setattr("launch.artefact.subprocess.run", builds.run)
    return builds


@pytest.fixture
def source(tmp_path: Path) -> Path:
    directory = tmp_path / "source"
    directory.mkdir()
    write_encoder(directory)
    return directory


def test_it_is_built_once(builds: Builds, source: Path) -> None:
    first, second = (built_artefact("tiny", str(source)) for _ in range(2))
    assert first == second
    assert builds.names == ["tiny"]


def test_what_is_damaged_is_built_again(builds: Builds, source: Path) -> None:
    directory = built_artefact("tiny", str(source))
    (directory / "tokenizer.json").write_text("{}")
    built_artefact("tiny", str(source))
    assert builds.names == ["tiny"] * 2


@pytest.mark.parametrize("change", ["edit", "remove"])
def test_a_source_that_has_changed_is_built_again(
    builds: Builds, source: Path, change: str
) -> None:
    built_artefact("tiny", str(source))
    config = source / "config.json"
    config.unlink() if change == "remove" else config.write_text("{}")
    built_artefact("tiny", str(source))
    assert builds.names == ["tiny"] * 2


def test_a_build_that_fails_is_told(builds: Builds, source: Path) -> None:
    builds.exit_code = 1
    with pytest.raises(BuildFailed, match="no artefact of"):
        built_artefact("tiny", str(source))
