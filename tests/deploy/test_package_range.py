"""PKG-01: server and client work at both ends of what the project allows of gRPC and protobuf.

The test that makes an environment with everything at its pinned version is in test_installation.
"""

from __future__ import annotations

import json
import subprocess
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from tests.artefacts import decoder_artefact, encoder_artefact
from tests.deploy.dockerfile import ROOT
from tests.deploy.fresh_environment import FreshEnvironment
from tests.e2e.server_process import running_server

EXTRAS = ("server", "cpu", "client", "tracing")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def ranges() -> dict[str, Requirement]:
    """What the project says of gRPC, its companions and protobuf."""
    lines = [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["server"]]
    requirements = {canonicalize_name(each.name): each for each in map(Requirement, lines)}
    return {
        name: requirement
        for name, requirement in requirements.items()
        if name.startswith("grpcio") or "protos" in name or name == "protobuf"
    }


def lowest(requirement: Requirement) -> str:
    """The version that a range begins with."""
    [version] = [each.version for each in requirement.specifier if each.operator == ">="]
    return version


def constraints(end: str) -> str:
    """The project's own, but what has a range is at its lowest, or free to be the highest."""
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    others = [line for line in lines if canonicalize_name(Requirement(line).name) not in ranges()]
    floors = [f"{name}=={lowest(requirement)}" for name, requirement in ranges().items()]
    return "\n".join([*others, *(floors if end == "lowest" else [])])


@pytest.mark.full
@pytest.mark.timeout(900)
@pytest.mark.parametrize("end", ["lowest", "highest"])
def test_an_end_of_the_ranges_serves(end: str, tmp_path: Path) -> None:
    (tmp_path / "constraints.txt").write_text(constraints(end))
    fresh = FreshEnvironment.install(tmp_path / "venv", EXTRAS, tmp_path / "constraints.txt")
    versions = {name: Version(fresh.versions()[name]) for name in ranges()}
    for name, requirement in ranges().items():
        assert versions[name] in requirement.specifier
        if end == "lowest":
            assert versions[name] == Version(lowest(requirement))
    print({name: str(version) for name, version in versions.items()})
    with running_server([encoder_artefact(), decoder_artefact()], python=fresh.python) as server:

        def client(*arguments: str) -> str:
            command = [fresh.python, "-m", "client", "--target", server.target, *arguments]
            result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
            assert result.returncode == 0, result.stdout + result.stderr
            return result.stdout

        assert "SERVING" in client("health")
        assert json.loads(client("--json", "embed", "hello"))["items"][0]["vector"]
        unary = client("generate", "hello", "--max-new-tokens", "8", "--temperature", "0")
        stream = client(
            "generate", "hello", "--max-new-tokens", "8", "--temperature", "0", "--stream"
        )
        assert unary == stream
        assert "tiny-encoder" in client("models")
