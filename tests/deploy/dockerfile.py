"""deploy/Dockerfile, read as far as these tests need it."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCKERFILE = ROOT / "deploy" / "Dockerfile"
_HEALTHCHECK = re.compile(r"(?:--\S+\s+)*CMD\s+(?P<command>\[.*\])")


@dataclass(frozen=True)
class Copy:
    """One COPY: from the repository, or from the stage that it names."""

    stage: str | None
    sources: tuple[str, ...]
    destination: str


@dataclass(frozen=True)
class Stage:
    """One FROM and what follows; `base` is another stage or an image."""

    name: str
    base: str
    instructions: tuple[tuple[str, str], ...]


class Dockerfile:
    """All stages, and what each amounts to with those that it is based on."""

    def __init__(self, text: str) -> None:
        self.stages = {stage.name: stage for stage in _stages(text)}

    def copies(self, target: str) -> list[Copy]:
        """What it copies, in order."""
        return [_copy(value) for value in self._values(target, "COPY")]

    def environment(self, target: str) -> dict[str, str]:
        """What its processes find in the environment."""
        words = [word for value in self._values(target, "ENV") for word in shlex.split(value)]
        return dict(word.split("=", 1) for word in words)

    def command(self, target: str, instruction: str = "ENTRYPOINT") -> list[str]:
        """The words of ENTRYPOINT or CMD, which have to be in exec form: a JSON list."""
        words: list[str] = json.loads(self._values(target, instruction)[-1])
        return words

    def health_command(self, target: str) -> list[str]:
        """The words of HEALTHCHECK's command."""
        match = _HEALTHCHECK.fullmatch(self._values(target, "HEALTHCHECK")[-1])
        assert match is not None, "HEALTHCHECK is not in exec form"
        words: list[str] = json.loads(match["command"])
        return words

    def user(self, target: str) -> str:
        """Who its processes run as."""
        return self._values(target, "USER")[-1]

    def ports(self, target: str) -> set[int]:
        """What it exposes."""
        return {int(port) for value in self._values(target, "EXPOSE") for port in value.split()}

    def extras(self, target: str) -> set[str]:
        """The extras of the project that it installs, in the stage that it copies them from."""
        found = [
            extra
            for stage in (copy.stage for copy in self.copies(target) if copy.stage)
            for command in self._values(stage, "RUN")
            for group in re.findall(r"'\.\[([\w,]+)\]'", command)
            for extra in group.split(",")
        ]
        return set(found)

    def assemble(self, target: str, directory: Path) -> None:
        """Copies what it copies from the repository, relative to its WORKDIR, to `directory`."""
        for copy in self.copies(target):
            if copy.stage is None:
                for source in copy.sources:
                    _place(ROOT / source, directory, copy.destination)

    def _values(self, target: str, instruction: str) -> list[str]:
        return [
            value
            for stage in self._lineage(target)
            for keyword, value in stage.instructions
            if keyword == instruction
        ]

    def _lineage(self, target: str) -> list[Stage]:
        """The stage itself last, what it is based on before it."""
        stage = self.stages[target]
        return [*(self._lineage(stage.base) if stage.base in self.stages else []), stage]


def load_dockerfile() -> Dockerfile:
    """The repository's."""
    return Dockerfile(DOCKERFILE.read_text())


def _stages(text: str) -> Iterator[Stage]:
    for block in re.split(r"^FROM ", _logical_lines(text), flags=re.MULTILINE)[1:]:
        head, *lines = block.splitlines()
        base, _, name = head.split()
        words = [line.split(maxsplit=1) for line in lines]
        yield Stage(name, base, tuple((keyword, value) for keyword, value in words))


def _logical_lines(text: str) -> str:
    """One instruction a line, without comments."""
    code = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return re.sub(r"\\\n\s*", "", "\n".join(code))


def _copy(value: str) -> Copy:
    words = value.split()
    stage = None
    if words[0].startswith("--from="):
        stage = words.pop(0).removeprefix("--from=")
    return Copy(stage, tuple(words[:-1]), words[-1])


def _place(source: Path, directory: Path, destination: str) -> None:
    """As COPY does: the content of a directory, or a file into a directory that ends with /."""
    if source.is_dir():
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(source, directory / destination, ignore=ignored, dirs_exist_ok=True)
        return
    (directory / destination).mkdir(parents=True, exist_ok=True)
    shutil.copy(source, directory / destination)
