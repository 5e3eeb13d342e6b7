"""The life of the server: listen, load, serve, drain, stop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from contextlib import suppress
from enum import IntEnum
from typing import Any

import grpc
from structlog.typing import FilteringBoundLogger

from server.calls import Calls
from server.expendable import ExpendableThread, run_expendably
from server.health import Health
from server.listener import SERVICES, bind, make_grpc_server
from server.models import Models
from server.report import describe_models
from server.self_check import ask_every_model
from server.settings import Address, Settings
from server.stop_signals import Stopped, StopSignals
from server.tls import server_credentials
from server.token_file import TokenFile
from server.worker import Worker

_LOOPBACK = Address("127.0.0.1", 0)
_WATCH_SECONDS = 0.5
_STATUS_SECONDS = 2.0  # for the statuses of interrupted calls to go out
_JOIN_SECONDS = 5.0  # for an engine to end its step


class Exit(IntEnum):
    """What the process exits with."""

    OK = 0
    FAILED = 1
    INTERRUPTED = 130


class Daemon:
    """Models and the server that answers for them."""

    def __init__(
        self,
        settings: Settings,
        models: Models,
        calls: Calls,
        signals: StopSignals,
        log: FilteringBoundLogger,
    ) -> None:
        self._settings = settings
        self._models = models
        self._calls = calls
        self._signals = signals
        self._log = log
        self._worker = Worker()
        self._health = Health(SERVICES)
        self._began = time.monotonic()

    async def check(self) -> Exit:
        """Loads and warms up, has every model answer one request, and stops again.

        Raises:
            CheckError: a model does not answer.
            Stopped: a signal has come first.
        """
        server = make_grpc_server(
            self._settings, self._calls, self._models, self._health, self._worker
        )
        target = str(bind(server, _LOOPBACK))
        await server.start()
        try:
            await self._load()
            self._calls.accepting = True
            patience = self._settings.max_request_seconds
            await self._signals.or_stop(ask_every_model(self._models, target, patience))
            self._log.info("checked", models=describe_models(self._models))
        finally:
            await self._stop(server)
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
        log.info("listening", listen=str(address), metrics_listen=metrics_address)
        try:
            with suppress(Stopped):
                await self._load()
                await self._open(str(address), metrics_address)
            healthy = await self._watch()
            await self._drain()
        finally:
            await self._stop(server)
        log.info("stopped", healthy=healthy)
        if not healthy:
            return Exit.FAILED
        return Exit.INTERRUPTED if self._signals.interrupted else Exit.OK

    async def _load(self) -> None:
        """Starts every engine.

        Raises:
            Stopped: a signal has come first; an engine that is loading is left behind.
        """
        for model in self._models:
            self._log.info("loading", model=model.name)
            for engine in model.engines:
                await self._signals.or_stop(run_expendably(engine.start, f"load {model.name}"))

    async def _open(self, address: str, metrics_address: str) -> None:
        self._calls.accepting = True
        await self._health.serve()
        self._log.info(
            "serving",
            listen=address,
            metrics_listen=metrics_address,
            threads=self._settings.threads,
            load_seconds=round(time.monotonic() - self._began, 3),
            models=describe_models(self._models),
        )

    async def _watch(self) -> bool:
        """Waits for a signal; False where an engine has died, or hangs, first."""
        while not self._signals.stop.is_set():
            for model in self._models:
                if not all(engine.alive for engine in model.engines):
                    self._log.error("a model has died or hangs", model=model.name)
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

    async def _stop(self, server: grpc.aio.Server) -> None:
        """Ends the server, then the engines; those that hang or still load are left behind."""
        self._health.end()
        await server.stop(grace=_STATUS_SECONDS)
        self._worker.close()
        engines = [engine for model in self._models for engine in model.engines]
        stopping = [ExpendableThread(engine.stop, "stop") for engine in engines if engine.alive]
        for thread in stopping:
            thread.start()
        for thread in stopping:
            thread.join(_JOIN_SECONDS)


async def _first(seconds: float, *awaitables: Coroutine[Any, Any, object]) -> None:
    """Waits until one of them is done, and no longer than so many seconds."""
    tasks = [asyncio.ensure_future(each) for each in awaitables]
    await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()
