"""What the Dockerfile names exists, and is what the code and the project say."""

from __future__ import annotations

import subprocess
import tomllib
from collections.abc import Iterable

import click
import pytest

from client.__main__ import cli
from server.command import main
from server.options import ENVIRONMENT_PREFIX
from tests.deploy.dockerfile import DOCKERFILE, ROOT, load_dockerfile
from tests.deploy.extras import closure

IMAGES = load_dockerfile()
TARGETS = ("export", "server", "server-cuda")
SERVERS = ("server", "server-cuda")
LOCAL = sorted(
    {
        source
        for stage in IMAGES.stages
        for copy in IMAGES.copies(stage)
        if copy.stage is None
        for source in copy.sources
    }
)


@pytest.mark.parametrize("source", LOCAL)
def test_what_is_copied_is_in_the_repository(source: str) -> None:
    listed = subprocess.run(
        ["git", "ls-files", source], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert listed.stdout, f"{source} is not committed"


@pytest.mark.parametrize("source", LOCAL)
def test_what_is_copied_is_sent_to_the_builder(source: str) -> None:
    lines = DOCKERFILE.with_suffix(".dockerignore").read_text().splitlines()
    assert "*" in lines
    assert f"!{source.split('/')[0].removeprefix('./')}" in lines


@pytest.mark.parametrize("stage", IMAGES.stages)
def test_stages_copy_from_stages_before_them(stage: str) -> None:
    before = list(IMAGES.stages)[: list(IMAGES.stages).index(stage)]
    sources = {copy.stage for copy in IMAGES.copies(stage) if copy.stage is not None}
    assert sources <= set(before)


@pytest.mark.parametrize("target", TARGETS)
def test_an_image_installs_extras_of_the_project(target: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert IMAGES.extras(target)
    assert IMAGES.extras(target) <= project["optional-dependencies"].keys()


@pytest.mark.parametrize("target", TARGETS)
def test_an_image_runs_as_somebody_but_root(target: str) -> None:
    assert int(IMAGES.user(target)) > 0


@pytest.mark.parametrize("target", TARGETS)
def test_an_image_starts_a_module_that_it_has_and_no_shell(target: str) -> None:
    python, option, module = IMAGES.command(target)
    assert (python, option) == ("python", "-m")
    assert (ROOT / module / "__main__.py").is_file()
    assert f"./{module}" in {copy.destination for copy in IMAGES.copies(target)}


@pytest.mark.parametrize("target", SERVERS)
def test_a_server_s_image_has_no_torch_and_one_runtime(target: str) -> None:
    extras = IMAGES.extras(target)
    assert closure(extras).isdisjoint({"torch", "transformers", "onnx", "onnxscript"})
    assert len(extras & {"cpu", "cuda"}) == 1


@pytest.mark.parametrize("target", SERVERS)
def test_a_server_s_environment_sets_options_that_there_are(target: str) -> None:
    ours = names_of(IMAGES.environment(target))
    options = {f"{ENVIRONMENT_PREFIX}_{option.name}".upper() for option in main.params}
    assert ours
    assert ours <= options


@pytest.mark.parametrize("target", SERVERS)
def test_a_server_listens_on_the_ports_that_it_exposes(target: str) -> None:
    environment = IMAGES.environment(target)
    addresses = [environment[name] for name in names_of(environment)]
    assert {int(address.rpartition(":")[2]) for address in addresses} == IMAGES.ports(target)
    defaults = [option.default for option in main.params if "listen" in str(option.name)]
    assert {int(str(default).rpartition(":")[2]) for default in defaults} == IMAGES.ports(target)


@pytest.mark.parametrize("target", SERVERS)
def test_a_server_s_health_is_asked_by_a_command_that_there_is(target: str) -> None:
    *python, module = IMAGES.health_command(target)[:3]
    assert python == ["python", "-m"]
    assert module == "client"
    context = cli.make_context("client", IMAGES.health_command(target)[3:])
    assert int(context.params["target"].rpartition(":")[2]) in IMAGES.ports(target)
    assert isinstance(cli.get_command(context, "health"), click.Command)


def names_of(environment: Iterable[str]) -> set[str]:
    return {name for name in environment if name.startswith(ENVIRONMENT_PREFIX)}
