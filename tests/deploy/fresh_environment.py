"""A virtual environment of its own, with the project and some of its extras."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from packaging.utils import canonicalize_name

from tests.deploy.dockerfile import ROOT


@dataclass(frozen=True)
class FreshEnvironment:
    """An environment that exists."""

    directory: Path

    @classmethod
    def install(cls, directory: Path, extras: Iterable[str], constraints: Path) -> Self:
        """Makes one, with the newest packages that the constraints allow."""
        subprocess.run([sys.executable, "-m", "venv", directory], check=True)
        environment = cls(directory)
        install = ["install", "--quiet", "-c", str(constraints), f".[{','.join(sorted(extras))}]"]
        environment._pip(*install)
        return environment

    @property
    def python(self) -> str:
        """Its interpreter."""
        return str(self.directory / "bin" / "python")

    def versions(self) -> dict[str, str]:
        """Of everything that it holds, by canonical names."""
        listed = json.loads(self._pip("list", "--format=json"))
        return {canonicalize_name(each["name"]): each["version"] for each in listed}

    def _pip(self, *arguments: str) -> str:
        command = [self.python, "-m", "pip", "--disable-pip-version-check", *arguments]
        result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        assert result.returncode == 0, result.stdout + result.stderr
        return result.stdout
