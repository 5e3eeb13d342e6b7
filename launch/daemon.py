"""A server of this checkout: `python -m server` on free ports, stopped at the end of a block."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from launch.artefact import ROOT

_START_SECONDS = 120
_STOP_SECONDS = 60
_SHOWN_LINES = 20


class DaemonFailed(Exception):
    """The server did not do what it should; the end of its log is in the message."""


@dataclass(frozen=True)
class Daemon:
    """A server that is ready: where it listens for gRPC, and its /metrics."""

    target: str
    metrics_url: str


@contextmanager
def daemon(artefacts: Sequence[Path], *options: str) -> Iterator[Daemon]:
    """Serves the artefacts; on leaving stops the server with SIGTERM and waits for it.

    Raises:
        DaemonFailed: it was not ready in time, something failed in the block, or its exit code was
            not 0.
    """
    command = [sys.executable, "-m", "server", *map(str, artefacts)]
    command += ["--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0", *options]
    with tempfile.NamedTemporaryFile("w+") as log:
        process = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT)
        try:
            yield _await_ready(process, log)
            process.send_signal(signal.SIGTERM)
            if code := process.wait(_STOP_SECONDS):
                raise RuntimeError(f"the server ended with {code}")
        except Exception as error:
            raise DaemonFailed(f"{error}\n{_end_of(log)}") from error
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()


def _await_ready(process: subprocess.Popen[bytes], log: IO[str]) -> Daemon:
    deadline = time.monotonic() + _START_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        for line in _read(log).split("\n")[:-1]:  # the last may not be complete yet
            if line.startswith("{") and (event := json.loads(line))["event"] == "serving":
                return Daemon(event["listen"], f"http://{event['metrics_listen']}/metrics")
        time.sleep(0.05)
    raise TimeoutError("the server does not get ready")


def _end_of(log: IO[str]) -> str:
    return "\n".join(_read(log).splitlines()[-_SHOWN_LINES:])


def _read(log: IO[str]) -> str:
    log.seek(0)
    return log.read()
