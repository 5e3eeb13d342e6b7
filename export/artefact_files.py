"""The files of an artefact, opened and compared with what its manifest says of them.

Imports the standard library and the manifest, so that the server opens an artefact as export does.
"""

from __future__ import annotations

import hashlib
import os
import stat
from mmap import ACCESS_READ, mmap
from pathlib import Path

from export.manifest import FileSpec, Manifest, ManifestError

FileContent = mmap | bytes


def verify_files(directory: Path, manifest: Manifest) -> None:
    """Compares size and sha256 of every listed file.

    Raises:
        ManifestError: naming each file that is missing, unreadable or different.
    """
    open_files(directory, manifest)


def open_files(directory: Path, manifest: Manifest) -> dict[str, FileContent]:
    """The content of every listed file, mapped read-only.

    Each is opened once, so what was compared is what is read, wherever a link leads later.

    Raises:
        ManifestError: as `verify_files`.
    """
    contents, problems = {}, []
    for name, spec in sorted(manifest.files.items()):
        try:
            contents[name] = _open_file(directory / name, spec)
        except (FileNotFoundError, IsADirectoryError):
            problems.append(f"{name} is missing or not a regular file")
        except OSError as error:
            problems.append(f"{name} cannot be read: {error.strerror}")
        except ManifestError as error:
            problems.append(f"{name} {error}")
    if problems:
        raise ManifestError("; ".join(problems))
    return contents


def describe_file(path: Path) -> FileSpec:
    """Size and sha256 of a file."""
    return FileSpec(size=path.stat().st_size, sha256=_sha256(path))


def describe_files(directory: Path) -> dict[str, FileSpec]:
    """Every file of a directory, by its name."""
    return {path.name: describe_file(path) for path in sorted(directory.iterdir())}


def _open_file(path: Path, spec: FileSpec) -> FileContent:
    # Without blocking: opening a named pipe would wait for whoever writes to it.
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise ManifestError("is missing or not a regular file")
        if status.st_size != spec.size:
            raise ManifestError(f"has {status.st_size} bytes instead of {spec.size}")
        if hashlib.file_digest(file, "sha256").hexdigest() != spec.sha256:
            raise ManifestError("does not match its sha256")
        return mmap(file.fileno(), 0, access=ACCESS_READ) if spec.size else b""


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
