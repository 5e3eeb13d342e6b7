"""Artefacts of this checkout, built once and kept in build/artefacts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from export.artefact_files import describe_file, verify_files
from export.manifest import ManifestError, load_manifest

ROOT = Path(__file__).resolve().parent.parent
ARTEFACTS = ROOT / "build" / "artefacts"


class BuildFailed(Exception):
    """`python -m export build` has said why."""


def built_artefact(name: str, source: str, *options: str) -> Path:
    """The artefact of a source: as it is where it is whole and the source's own, else built now.

    `options` go to the command.

    Raises:
        BuildFailed: the source could not be exported.
    """
    directory = ARTEFACTS / name
    if _is_whole(directory, ROOT / source):
        return directory
    ARTEFACTS.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "export", "build", source]
    command += ["--output", str(directory), "--name", name, "--force", *options]
    if subprocess.run(command, cwd=ROOT, check=False).returncode:
        raise BuildFailed(f"no artefact of {source}")
    return directory


def _is_whole(directory: Path, source: Path) -> bool:
    """Whether the server would accept it, and a source that is a directory holds what it did."""
    try:
        manifest = load_manifest(directory)
        verify_files(directory, manifest)
    except ManifestError:
        return False
    return not source.is_dir() or all(
        (source / name).is_file() and describe_file(source / name).sha256 == digest
        for name, digest in manifest.source.files.items()
    )
