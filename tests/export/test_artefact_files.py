"""An artefact's files: every one that is not what the manifest says is named."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from export.artefact_files import describe_file, open_files, verify_files
from export.manifest import ManifestError
from tests.export.test_manifest import MANIFEST


def test_every_file_that_differs_is_named(tmp_path: Path) -> None:
    for name in ("a", "b", "c", "d"):
        (tmp_path / name).write_bytes(b"content")
    good = describe_file(tmp_path / "a")
    manifest = replace(
        MANIFEST, graphs={}, files={"a": good, "b": good, "c": good, "d": good, "e": good}
    )
    (tmp_path / "b").write_bytes(b"contend")
    (tmp_path / "c").write_bytes(b"short")
    (tmp_path / "d").unlink()
    (tmp_path / "d").mkdir()
    with pytest.raises(ManifestError) as caught:
        verify_files(tmp_path, manifest)
    assert str(caught.value).split("; ") == [
        "b does not match its sha256",
        "c has 5 bytes instead of 7",
        "d is missing or not a regular file",
        "e is missing or not a regular file",
    ]


def test_what_was_compared_is_what_is_read(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"content")
    (tmp_path / "empty").touch()
    described = {name: describe_file(tmp_path / name) for name in ("a", "empty")}
    files = open_files(tmp_path, replace(MANIFEST, graphs={}, files=described))
    (tmp_path / "a").unlink()
    (tmp_path / "a").write_bytes(b"another")
    assert files["a"][:] == b"content"
    assert files["empty"] == b""
