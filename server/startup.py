"""From settings to a server that runs: verify, make the models, see that they fit, go."""

from __future__ import annotations

import asyncio
from contextlib import closing
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry
from structlog.typing import FilteringBoundLogger

from server.calls import Calls
from server.daemon import Daemon, Exit
from server.expendable import run_expendably
from server.loading import load_artefacts, make_models
from server.memory_budget import MemoryBudget, allowed_memory
from server.metrics import Metrics
from server.metrics_server import MetricsServer
from server.models import Models
from server.settings import Settings
from server.stop_signals import Stopped, StopSignals

if TYPE_CHECKING:
    from server.tracing import Tracing


class TracingError(Exception):
    """Tracing was asked for and cannot be had; says what to install."""


async def run(settings: Settings, log: FilteringBoundLogger) -> Exit:
    """Serves until a signal comes or a model dies.

    Raises:
        ArtefactError, CheckError, DeviceError, LimitError, ListenError, TlsError, TokenFileError,
        TracingError: why it cannot.
    """
    signals = StopSignals()
    signals.install(asyncio.get_running_loop())
    tracing = _open_tracing(settings.trace_endpoint)
    try:
        return await _run(settings, signals, tracing, log)
    except Stopped:
        # A server that is stopped before it serves has done as it was told; a check has not.
        return Exit.INTERRUPTED if settings.check else Exit.OK
    finally:
        if tracing is not None:
            tracing.close()


async def _run(
    settings: Settings,
    signals: StopSignals,
    tracing: Tracing | None,
    log: FilteringBoundLogger,
) -> Exit:
    log.info("verifying", artefacts=[str(directory) for directory in settings.directories])
    verify = partial(load_artefacts, settings)
    artefacts = await signals.or_stop(run_expendably(verify, "verify"))
    registry = CollectorRegistry()
    metrics = Metrics(registry, [artefact.manifest.name for artefact in artefacts])
    make = partial(make_models, artefacts, settings, metrics, asyncio.get_running_loop())
    models = Models(await signals.or_stop(run_expendably(make, "prepare")))
    _check_memory(models, settings, log)
    calls = Calls(
        models,
        metrics,
        log,
        max_request_seconds=settings.max_request_seconds,
        log_text=settings.log_text,
        tracing=tracing,
    )
    daemon = Daemon(settings, models, calls, signals, log)
    if settings.check:
        return await daemon.check()
    with closing(MetricsServer(settings.metrics_listen, registry)) as metrics_server:
        return await daemon.serve(str(metrics_server.address))


def _open_tracing(endpoint: str | None) -> Tracing | None:
    """Loads OpenTelemetry, which only the extra installs, where it is asked for."""
    if endpoint is None:
        return None
    try:
        from server.tracing import Tracing
    except ModuleNotFoundError as error:
        raise TracingError(
            f"--trace-endpoint {endpoint}: {error.name} is not installed; install the extra "
            "`tracing`, or leave the flag (and OTEL_EXPORTER_OTLP_ENDPOINT) out"
        ) from None
    return Tracing.to(endpoint)


def _check_memory(models: Models, settings: Settings, log: FilteringBoundLogger) -> None:
    """Says what memory the server will take, and refuses to start where that does not fit."""
    budget = MemoryBudget.of(model.memory for model in models)
    allowed = allowed_memory(settings.memory_limit)
    log.info("memory", **asdict(budget), total=budget.total, allowed=allowed)
    budget.check(allowed)
