"""A real Prometheus on the loopback, with the repository's rules, that scrapes one server."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
CONFIGURATION = ROOT / "deploy" / "prometheus" / "prometheus.yml"
INSTALL = "Prometheus is not installed: apt-get install --no-install-recommends prometheus"
INSTALLED = shutil.which("prometheus") is not None and shutil.which("promtool") is not None
_SCRAPE_INTERVAL = "1s"  # which is also how long a busy machine may take over one
_START_SECONDS = 30


@dataclass(frozen=True)
class Series:
    """One series of an answer: its labels, and its values by Unix time in seconds."""

    labels: dict[str, str]
    values: tuple[tuple[float, float], ...]


class PrometheusProcess:
    """A Prometheus that runs."""

    def __init__(self, process: subprocess.Popen[bytes], url: str, log_path: Path) -> None:
        self._process = process
        self._url = url
        self._log_path = log_path

    def query(self, expression: str) -> list[Series]:
        """The value of every series of an expression, now."""
        found = self.ask("query", query=expression)["result"]
        return [_series(each["metric"], [each["value"]]) for each in found]

    def value(self, expression: str) -> float | None:
        """The value of an expression that is one series; None while there is none."""
        found = self.query(expression)
        assert len(found) <= 1, f"{expression} is {len(found)} series"
        return found[0].values[0][1] if found else None

    def query_range(self, expression: str, start: float, end: float, step: float) -> list[Series]:
        """The values of every series of an expression, from one Unix time to another."""
        found = self.ask("query_range", query=expression, start=start, end=end, step=step)
        return [_series(each["metric"], each["values"]) for each in found["result"]]

    def ask(self, endpoint: str, **parameters: object) -> Any:
        """The data of an answer of its HTTP interface."""
        url = f"{self._url}/api/v1/{endpoint}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(url, timeout=10) as response:
            return json.load(response)["data"]

    def wait_until(self, condition: Callable[[], bool]) -> None:
        """Returns when the condition holds; fails, with its log, when that takes too long."""
        deadline = time.monotonic() + _START_SECONDS
        while not _answered(condition):
            log = self._log_path.read_text()
            assert self._process.poll() is None, f"Prometheus has ended:\n{log}"
            assert time.monotonic() < deadline, f"Prometheus does not get there:\n{log}"
            time.sleep(0.05)


@contextmanager
def running_prometheus(target: str) -> Iterator[PrometheusProcess]:
    """A Prometheus that has scraped `target`, with storage of its own; killed at the end."""
    with TemporaryDirectory() as name:
        directory = Path(name)
        configuration = directory / "prometheus.yml"
        configuration.write_text(yaml.safe_dump(_configuration(target)))
        address = f"127.0.0.1:{_free_port()}"
        command = [
            "prometheus",
            f"--config.file={configuration}",
            f"--web.listen-address={address}",
        ]
        command += [f"--storage.tsdb.path={directory / 'storage'}"]
        log_path = directory / "log"
        with log_path.open("wb") as log:
            process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, cwd=directory)
        prometheus = PrometheusProcess(process, f"http://{address}", log_path)
        try:
            prometheus.wait_until(lambda: prometheus.value("up") == 1)
            yield prometheus
        finally:
            process.kill()
            process.wait()


def _configuration(target: str) -> dict[str, Any]:
    """The repository's, but for where the server is and how often things happen."""
    configuration: dict[str, Any] = yaml.safe_load(CONFIGURATION.read_text())
    configuration["global"] = {
        "scrape_interval": _SCRAPE_INTERVAL,
        "scrape_timeout": _SCRAPE_INTERVAL,
        "evaluation_interval": _SCRAPE_INTERVAL,
    }
    rules = configuration["rule_files"]
    configuration["rule_files"] = [str(CONFIGURATION.parent / rule) for rule in rules]
    [job] = configuration["scrape_configs"]
    job["static_configs"] = [{"targets": [target]}]
    return configuration


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def _answered(condition: Callable[[], bool]) -> bool:
    try:
        return condition()
    except OSError:  # it does not listen yet
        return False


def _series(labels: dict[str, str], values: list[tuple[float, str]]) -> Series:
    return Series(labels, tuple((at, float(value)) for at, value in values))
