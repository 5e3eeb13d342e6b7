"""Artefacts of real checkpoints."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from export.source import Source


@dataclass(frozen=True)
class RealArtefact:
    """An artefact and where it came from."""

    source: Source
    directory: Path
