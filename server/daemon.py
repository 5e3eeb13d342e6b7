"""The life of the server: verify, listen, load, serve, drain, stop."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import closing, suppress
from dataclasses import asdict
from enum import IntEnum
from threading import Thread
from typing import Any

from prometheus_client import CollectorRegistry
from structlog.typing import FilteringBoundLogger

from server.call import Calls
from server.health import Health
from server.listener import SERVICES, bind, make_grpc_server
from server.loading import load_artefacts, make_models
from server.memory_budget import MemoryBudget, allowed_memory
from server.metrics import Metrics
from server.metrics_server import MetricsServer
from server.models import Models
from server.report import describe_models
from server.settings import Settings
from server.stop_signals import StopSignals
from server.tls import server_credentials
from server.token_file import TokenFile
from server.worker import Worker

_WATCH_SECONDS = 0.5
_STATUS_SECONDS = 2.0  # for the statuses of interrupted calls to go out
_JOIN_SECONDS = 5.0  # for an engine to end its step; one that hangs is left behind


class Exit(IntEnum):
    """What the process exits with."""

    OK = 0
    FAILED = 1
    INTERRUPTED = 130


async def run(settings: Settings, log: FilteringBoundLogger) -> Exit:
    """Serves until a signal comes or a model dies.

    Raises:
        ArtefactError, DeviceError, LimitError, ListenError, TlsError, TokenFileError: why it
            cannot.
    """
    signals = StopSignals()
    signals.install(asyncio.get_running_loop())
    artefacts = await asyncio.to_thread(load_artefacts, settings)
    registry = CollectorRegistry()
    metrics = Metrics(registry, [artefact.manifest.name for artefact in artefacts])
    models = Models(make_models(artefacts, settings, metrics, asyncio.get_running_loop()))
    _check_memory(models, settings, log)
    daemon = Daemon(settings, models, metrics, signals, log)
    if settings.check:
        return await daemon.check()
    with closing(MetricsServer(settings.metrics_listen, registry)) as metrics_server:
        return await daemon.serve(str(metrics_server.address))


class Daemon:
    """Models and the server that answers for them."""

    def __init__(
        self,
        settings: Settings,
        models: Models,
        metrics: Metrics,
        signals: StopSignals,
        log: FilteringBoundLogger,
    ) -> None:
        self._settings = settings
        self._models = models
        self._signals = signals
        self._log = log
        self._worker = Worker()
        self._health = Health(SERVICES)
        self._calls = Calls(
            models,
            metrics,
            log,
            max_request_seconds=settings.max_request_seconds,
            log_text=settings.log_text,
        )

    async def check(self) -> Exit:
        """Loads and warms up, and stops again."""
        try:
            await self._load()
            self._log.info("checked", models=describe_models(self._models))
        finally:
            self._stop_engines()
        return Exit.OK

    async def serve(self, metrics_address: str) -> Exit:
        """Listens at once, answers when everything is loaded, and stops when told or broken."""
        settings, log = self._settings, self._log
        tokens = TokenFile(settings.auth_token_file, log) if settings.auth_token_file else None
        credentials = server_credentials(settings.tls, log) if settings.tls else None
        server = make_grpc_server(
            settings, self._calls, self._models, self._health, self._worker, tokens
        )
        address = bind(server, settings.listen, credentials)
        if settings.exposes_tokens:
            log.warning(
                "tokens travel in the clear: anybody on the way can read and use them",
                listen=str(address),
            )
        await self._health.start(self._models)
        await server.start()
        self._log.info("listening", listen=str(address), metrics_listen=metrics_address)
        try:
            await self._load()
            await self._open(str(address), metrics_address)
            healthy = await self._watch()
            await self._drain()
        finally:
            await server.stop(grace=_STATUS_SECONDS)
            self._worker.close()
            self._stop_engines()
        self._log.info("stopped", healthy=healthy)
        if not healthy:
            return Exit.FAILED
        return Exit.INTERRUPTED if self._signals.interrupted else Exit.OK

    async def _load(self) -> None:
        """Starts every engine, unless a signal says that it is no longer needed."""
        for model in self._models:
            for engine in model.engines:
                if not self._signals.stop.is_set():
                    await asyncio.to_thread(engine.start)

    async def _open(self, address: str, metrics_address: str) -> None:
        if self._signals.stop.is_set():
            return
        self._calls.accepting = True
        await self._health.serve()
        self._log.info(
            "serving",
            listen=address,
            metrics_listen=metrics_address,
            threads=self._settings.threads,
            models=describe_models(self._models),
        )

    async def _watch(self) -> bool:
        """Waits for a signal; False where an engine has died first."""
        while not self._signals.stop.is_set():
            for model in self._models:
                if not all(engine.alive for engine in model.engines):
                    self._log.error("a model has died", model=model.name)
                    await self._health.fail(model.name)
                    return False
            with suppress(TimeoutError):
                await asyncio.wait_for(self._signals.stop.wait(), _WATCH_SECONDS)
        return True

    async def _drain(self) -> None:
        """Refuses new calls, lets those that run end, and interrupts what is left."""
        await self._health.stop()
        self._calls.accepting = False
        self._log.info("draining", grace_seconds=self._settings.grace_seconds)
        await _first(
            self._settings.grace_seconds, self._calls.drained(), self._signals.hurry.wait()
        )
        self._calls.interrupt()
        await _first(_STATUS_SECONDS, self._calls.drained())

    def _stop_engines(self) -> None:
        """Ends the engines' threads; nothing else runs any more that this could hold up."""
        engines = [engine for model in self._models for engine in model.engines]
        stopping = [Thread(target=engine.stop, daemon=True) for engine in engines]
        for thread in stopping:
            thread.start()
        for thread in stopping:
            thread.join(_JOIN_SECONDS)


def _check_memory(models: Models, settings: Settings, log: FilteringBoundLogger) -> None:
    """Says what memory the server will take, and refuses to start where that does not fit."""
    budget = MemoryBudget.of(model.memory for model in models)
    allowed = allowed_memory(settings.memory_limit)
    log.info("memory", **asdict(budget), total=budget.total, allowed=allowed)
    budget.check(allowed)


async def _first(seconds: float, *awaitables: Coroutine[Any, Any, object]) -> None:
    """Waits until one of them is done, and no longer than so many seconds."""
    tasks = [asyncio.ensure_future(each) for each in awaitables]
    await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()
