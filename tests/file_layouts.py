"""Directories as hubs, clusters and permissions make them."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

_NOBODY = 65534


def linked(artefact: Path, directory: Path, layout: str) -> Path:
    """A copy of an artefact in `directory / "artefact"`, whose files are links.

    Args:
        layout: `hub cache` (the files lie elsewhere, under other names), `mounted volume` (two
            links lead to each, as Kubernetes has it) or `hard link`.
    """
    links, blobs = directory / "artefact", directory / "blobs"
    shutil.copytree(artefact, blobs)
    links.mkdir()
    if layout == "mounted volume":
        (links / "..data").symlink_to(blobs)
    for path in sorted(blobs.iterdir()):
        link = links / path.name
        match layout:
            case "hub cache":
                link.symlink_to(path.rename(blobs / f"blob-{path.name}"))
            case "mounted volume":
                link.symlink_to(Path("..data") / path.name)
            case "hard link":
                link.hardlink_to(path)
    return links


@contextlib.contextmanager
def unprivileged(directory: Path) -> Iterator[None]:
    """As a user whom permissions bind; the folders on the way to `directory` are open to all."""
    if os.geteuid() != 0:
        yield
        return
    for folder in (directory, *directory.parents):
        if (mode := folder.stat().st_mode) & 0o055 != 0o055:
            folder.chmod(mode | 0o055)
    os.seteuid(_NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)
