"""PKG-01: an environment with the extras of the server's image alone serves."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.utils import canonicalize_name

from tests.artefacts import decoder_artefact, encoder_artefact
from tests.deploy.dockerfile import ROOT, load_dockerfile
from tests.deploy.extras import closure

IMAGES = load_dockerfile()
TOOLS = {"pip", "setuptools"}  # of every environment


@pytest.mark.full
@pytest.mark.timeout(900)
def test_a_fresh_environment_holds_what_it_should_and_serves(tmp_path: Path) -> None:
    extras = IMAGES.extras("server")
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    python = str(tmp_path / "venv" / "bin" / "python")
    install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run(
        [*install, "-c", "constraints.txt", f".[{','.join(sorted(extras))}]"], cwd=ROOT, check=True
    )
    listing = [python, "-m", "pip", "list", "--format=json", "--disable-pip-version-check"]
    listed = json.loads(subprocess.run(listing, capture_output=True, check=True).stdout)
    installed = {canonicalize_name(each["name"]) for each in listed}
    assert installed - TOOLS == closure(extras) - TOOLS
    IMAGES.assemble("server", tmp_path / "app")
    check = [python, "-m", "server", *map(str, (encoder_artefact(), decoder_artefact()))]
    result = subprocess.run(
        [*check, "--check"], cwd=tmp_path / "app", capture_output=True, text=True
    )
    assert result.returncode == 0, result.stdout + result.stderr
    help_text = subprocess.run(
        [python, "-m", "client", "--help"], cwd=tmp_path / "app", capture_output=True, text=True
    )
    assert "health" in help_text.stdout
