"""A real server: `python -m server` in a process of its own, on free ports of the loopback."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

ROOT = Path(__file__).resolve().parents[2]
_START_SECONDS = 120
_STOP_SECONDS = 60
_QUIET_SECONDS = 10


@dataclass(frozen=True)
class MetricsSnapshot:
    """What /metrics said at one moment, the buckets of histograms left out."""

    samples: dict[tuple[str, frozenset[tuple[str, str]]], float]

    def value(self, name: str, labels: dict[str, str]) -> float:
        """The value of one series, by the name of its sample and all of its labels."""
        return self.samples[name, frozenset(labels.items())]

    def total(self, name: str, labels: dict[str, str] | None = None) -> float:
        """The sum of the series of a name that have these labels, whatever their others."""
        wanted = set((labels or {}).items())
        return sum(
            value for (n, found), value in self.samples.items() if n == name and wanted <= found
        )


class ServerProcess:
    """A server that is ready, or on its way.

    Attributes:
        process: it.
        log_path: where its standard output and error go.
    """

    def __init__(self, command: Sequence[str], log_path: Path) -> None:
        self.log_path = log_path
        with log_path.open("w") as log:
            self.process = subprocess.Popen(
                command,
                cwd=ROOT,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
            )

    def events(self, name: str) -> list[dict[str, Any]]:
        """The lines of its log that tell of one kind of event; the last may be half written."""
        whole = self.log().split("\n")[:-1]
        lines = [json.loads(line) for line in whole if line.startswith("{")]
        return [line for line in lines if line["event"] == name]

    def log(self) -> str:
        """All that it has said so far."""
        return self.log_path.read_text()

    def wait_until_ready(self) -> None:
        """Returns when it serves; fails, with its log, when it ends before."""
        deadline = time.monotonic() + _START_SECONDS
        while not self.events("serving"):
            assert self.process.poll() is None, f"the server has ended:\n{self.log()}"
            assert time.monotonic() < deadline, f"the server does not get ready:\n{self.log()}"
            time.sleep(0.02)

    @cached_property
    def target(self) -> str:
        """Where it serves gRPC."""
        return str(self.events("serving")[0]["listen"])

    @cached_property
    def metrics_url(self) -> str:
        """Where it serves its metrics."""
        return f"http://{self.events('serving')[0]['metrics_listen']}/metrics"

    def metrics(self) -> MetricsSnapshot:
        """What it measures, now."""
        with urllib.request.urlopen(self.metrics_url, timeout=10) as response:
            lines = response.read().decode().splitlines(keepends=True)
        content = "".join(line for line in lines if "_bucket{" not in line)
        return MetricsSnapshot(
            {
                (sample.name, frozenset(sample.labels.items())): sample.value
                for family in text_string_to_metric_families(content)
                for sample in family.samples
            }
        )

    def wait_until_quiet(self, seconds: float = _QUIET_SECONDS) -> MetricsSnapshot:
        """Returns what it measures when nothing runs, waits or holds a slot; fails otherwise."""
        deadline = time.monotonic() + seconds
        while True:
            snapshot = self.metrics()
            busy = (
                snapshot.total("formerd_requests_in_flight"),
                snapshot.total("formerd_queue_depth"),
                snapshot.total("formerd_slots", {"state": "used"}),
            )
            if not any(busy):
                return self.metrics()  # of one moment: series are read one after the other
            assert time.monotonic() < deadline, f"in flight, waiting, slots: {busy}\n{self.log()}"
            time.sleep(0.02)

    def signal(self, number: signal.Signals) -> None:
        """Sends it a signal."""
        self.process.send_signal(number)

    def wait(self) -> int:
        """Waits for its end; its exit code."""
        return self.process.wait(_STOP_SECONDS)


@contextmanager
def starting_server(
    directories: Sequence[Path],
    *flags: str,
    module: str = "server",
    python: str = sys.executable,
) -> Iterator[ServerProcess]:
    """A server that may not be ready yet, or never will be; killed at the end of the block.

    `module` takes its place where a test has to reach into it; `python` is the environment's.
    """
    command = [python, "-m", module, *map(str, directories)]
    command += ["--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0", *flags]
    with TemporaryDirectory() as directory:
        server = ServerProcess(command, Path(directory) / "server.log")
        try:
            yield server
        finally:
            server.process.kill()
            server.process.wait()


@contextmanager
def running_server(
    directories: Sequence[Path], *flags: str, python: str = sys.executable
) -> Iterator[ServerProcess]:
    """A server that is ready; at the end of the block it has to stop cleanly."""
    with starting_server(directories, *flags, python=python) as server:
        server.wait_until_ready()
        yield server
        if server.process.poll() is None:
            server.signal(signal.SIGTERM)
        code = server.wait()
        assert code == 0, f"the server ended with {code}:\n{server.log()}"
