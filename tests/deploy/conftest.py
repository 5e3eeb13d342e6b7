"""One server under a little load, and the Prometheus that has watched it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.artefacts import decoder_artefact, encoder_artefact
from tests.deploy.light_load import run_light_load
from tests.deploy.prometheus_process import (
    INSTALL,
    INSTALLED,
    PrometheusProcess,
    running_prometheus,
)
from tests.e2e.server_process import MetricsSnapshot, running_server

_LOAD_SECONDS = 4.0


@dataclass(frozen=True)
class Watched:
    """What Prometheus knows after a load, and what the server said of it when all was quiet."""

    prometheus: PrometheusProcess
    snapshot: MetricsSnapshot


@pytest.fixture(scope="session")
def watched() -> Iterator[Watched]:
    """A Prometheus that has scraped a server before, during and after a load."""
    if not INSTALLED:
        pytest.skip(INSTALL)
    flags = ("--slots", "4", "--prefill-chunk", "32", "--threads", "1")
    with (
        running_server([encoder_artefact(), decoder_artefact()], *flags) as server,
        running_prometheus(server.metrics_url.split("/")[2]) as prometheus,
    ):
        run_light_load(server.target, "tiny-encoder", "tiny-decoder", _LOAD_SECONDS)
        snapshot = server.wait_until_quiet()
        ended = snapshot.total("formerd_requests_total")
        prometheus.wait_until(lambda: prometheus.value("sum(formerd_requests_total)") == ended)
        yield Watched(prometheus, snapshot)
