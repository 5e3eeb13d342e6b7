"""PKG-01: an environment with the extras of the server's image alone serves."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.artefacts import decoder_artefact, encoder_artefact
from tests.deploy.dockerfile import ROOT, load_dockerfile
from tests.deploy.extras import closure
from tests.deploy.fresh_environment import FreshEnvironment

IMAGES = load_dockerfile()
TOOLS = {"pip", "setuptools"}  # of every environment


@pytest.mark.full
@pytest.mark.timeout(900)
def test_a_fresh_environment_holds_what_it_should_and_serves(tmp_path: Path) -> None:
    extras = IMAGES.extras("server")
    fresh = FreshEnvironment.install(tmp_path / "venv", extras, ROOT / "constraints.txt")
    assert fresh.versions().keys() - TOOLS == closure(extras) - TOOLS
    IMAGES.assemble("server", tmp_path / "app")
    check = [fresh.python, "-m", "server", *map(str, (encoder_artefact(), decoder_artefact()))]
    result = subprocess.run(
        [*check, "--check"], cwd=tmp_path / "app", capture_output=True, text=True
    )
    assert result.returncode == 0, result.stdout + result.stderr
    help_text = subprocess.run(
        [fresh.python, "-m", "client", "--help"],
        cwd=tmp_path / "app",
        capture_output=True,
        text=True,
    )
    assert "health" in help_text.stdout
