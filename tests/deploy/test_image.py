"""PKG-02: the server runs as its image would run it.

What the Dockerfile copies and nothing else, only what its extras install, another user, nothing to
write to, no HOME, no network but the loopback.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.artefacts import decoder_artefact, encoder_artefact
from tests.deploy.dockerfile import load_dockerfile
from tests.deploy.extras import absent_modules

HERE = Path(__file__).parent
DOCKERFILE = load_dockerfile()
PYTHON = Path(sys.executable)
START_SECONDS = 60
METRICS = "import urllib.request as r; print(r.urlopen('http://127.0.0.1:9464/metrics').read())"


@dataclass(frozen=True)
class Container:
    """What stands in for a running container of the image `server`."""

    process: subprocess.Popen[bytes]
    application: Path
    log_path: Path

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Runs a command beside the server, as `docker exec` would."""
        enter = ["nsenter", f"--target={self.process.pid}", "--net", "--mount"]
        enter += [f"--wdns={self.application}"]
        return subprocess.run(
            [*enter, *as_user(), *as_installed(*command)],
            env=environment(),
            capture_output=True,
            text=True,
            timeout=30,
        )

    def wait_until_healthy(self) -> None:
        """Returns when HEALTHCHECK succeeds."""
        deadline = time.monotonic() + START_SECONDS
        while self.run(*DOCKERFILE.health_command("server")).returncode != 0:
            log = self.log_path.read_text()
            assert self.process.poll() is None, f"it has ended:\n{log}"
            assert time.monotonic() < deadline, f"it does not get healthy:\n{log}"
            time.sleep(0.1)


@pytest.fixture(scope="module")
def possible() -> None:
    """Skips where this machine cannot stand in for a container engine."""
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    attempt = ["unshare", "--net", "--mount", *as_user(), "true"]
    result = subprocess.run(attempt, capture_output=True, text=True)
    if result.returncode != 0:
        pytest.skip(f"no namespaces here: {result.stderr.strip()}")


@pytest.mark.usefixtures("possible")
def test_the_server_starts_serves_and_stops_as_its_image_would() -> None:
    with running_container() as container:
        container.wait_until_healthy()
        answer = container.run("python", "-m", "client", "--json", "embed", "hello")
        assert answer.returncode == 0, answer.stderr
        assert json.loads(answer.stdout)["items"][0]["vector"]
        generate = ("generate", "hello", "--max-new-tokens", "4")
        assert container.run("python", "-m", "client", *generate).returncode == 0
        assert "formerd_ready" in container.run("python", "-c", METRICS).stdout
        container.process.send_signal(signal.SIGTERM)
        assert container.process.wait(30) == 0, container.log_path.read_text()


def test_the_export_image_has_all_that_export_imports(tmp_path: Path) -> None:
    DOCKERFILE.assemble("export", tmp_path)
    command = [*DOCKERFILE.command("export"), *DOCKERFILE.command("export", "CMD")]
    result = subprocess.run(
        as_installed(*command, extras=DOCKERFILE.extras("export")),
        cwd=tmp_path,
        env={"PATH": f"{PYTHON.parent}:{os.defpath}"},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
    assert "build" in result.stdout


def test_a_module_outside_the_extras_is_not_found(tmp_path: Path) -> None:
    (tmp_path / "greedy.py").write_text("import torch")
    command = as_installed("python", "-m", "greedy")
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert "No module named 'torch'" in result.stderr


@contextmanager
def running_container() -> Iterator[Container]:
    """The image's file system, in a directory that others may read, and its first process."""
    with TemporaryDirectory() as name:
        directory = Path(name)
        directory.chmod(0o755)
        application, models = directory / "app", directory / "models"
        DOCKERFILE.assemble("server", application)
        for artefact in (encoder_artefact(), decoder_artefact()):
            shutil.copytree(artefact, models / artefact.name)
        subprocess.run(["chmod", "-R", "a+rX,a-w", directory], check=True)
        command = [*DOCKERFILE.command("server"), *map(str, sorted(models.iterdir()))]
        log_path = directory / "log"
        with log_path.open("wb") as log:
            process = subprocess.Popen(
                enclosed(application, as_installed(*command)),
                cwd=application,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        try:
            yield Container(process, application, log_path)
        finally:
            process.kill()
            process.wait()


def enclosed(directory: Path, command: list[str]) -> list[str]:
    """A command in a network and a file system of its own, as the image's user."""
    enclosure = [str(PYTHON), str(HERE / "enclosure.py"), user(), json.dumps(environment())]
    return ["unshare", "--net", "--mount", f"--wd={directory}", *enclosure, *command]


def as_installed(*command: str, extras: set[str] | None = None) -> list[str]:
    """`python -m MODULE` (or `python -c`) of an image, where its extras alone are installed."""
    python, option, module, *arguments = command
    assert python == "python"
    if option == "-c":
        return [str(PYTHON), option, module, *arguments]
    # The server needs neither the client, which is there for HEALTHCHECK, nor to be traced.
    spared = {"client", "tracing"} if module == "server" else set()
    needed = extras or DOCKERFILE.extras("server") - spared
    runner = [
        str(PYTHON),
        str(HERE / "without_modules.py"),
        ",".join(absent_modules(frozenset(needed))),
    ]
    return [*runner, module, *arguments]


def environment() -> dict[str, str]:
    """The image's, but for where Python is."""
    return {**DOCKERFILE.environment("server"), "PATH": f"{PYTHON.parent}:{os.defpath}"}


def as_user() -> list[str]:
    """What turns a command of root into one of the image's user."""
    return ["setpriv", f"--reuid={user()}", f"--regid={user()}", "--clear-groups"]


def user() -> str:
    """The image's."""
    return DOCKERFILE.user("server")
