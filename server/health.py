"""Readiness of the server, its services and its models, as grpc.health.v1 and metrics tell it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import grpc
from grpc_health.v1 import health, health_pb2

from server.metrics import ModelMetrics
from server.models import Model

PACKAGE = "formerd.v1"
_SERVING = health_pb2.HealthCheckResponse.SERVING
_NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


class EndingHealthServicer(health.aio.HealthServicer):
    """The servicer of grpcio-health-checking, whose watches end before the server does.

    One that is still open when the loop closes is torn down with a traceback in the log.
    """

    def __init__(self) -> None:
        super().__init__()
        self._ended = asyncio.Event()

    async def Watch(self, request: Any, context: Any) -> None:  # noqa: N802  # as in the protocol
        """Tells of every change until the server stops."""
        watching = asyncio.ensure_future(super().Watch(request, context))
        ending = asyncio.ensure_future(self._ended.wait())
        try:
            await asyncio.wait((watching, ending), return_when=asyncio.FIRST_COMPLETED)
        finally:
            watching.cancel()
            ending.cancel()
        await context.abort(grpc.StatusCode.UNAVAILABLE, "the server has stopped")

    def end_watches(self) -> None:
        """Ends those that are open and those that come."""
        self._ended.set()


class Health:
    """The health of `""`, of each service by its full name, and of each model.

    A model is `formerd.v1/<model>`. The whole is healthy while every model is.
    """

    def __init__(self, services: Iterable[str]) -> None:
        self.servicer = EndingHealthServicer()
        self._services = ("", *services)
        self._models: dict[str, ModelMetrics] = {}

    async def start(self, models: Iterable[Model]) -> None:
        """Makes everything known; nothing serves yet."""
        self._models = {model.name: model.metrics for model in models}
        for model in self._models:
            await self._set_model(model, serving=False)
        await self._set_services(serving=False)

    async def serve(self) -> None:
        """Everything is ready."""
        for model in self._models:
            await self._set_model(model, serving=True)
        await self._set_services(serving=True)

    async def fail(self, model: str) -> None:
        """A model can no longer serve, and so neither can the whole."""
        await self._set_model(model, serving=False)
        await self._set_services(serving=False)

    async def stop(self) -> None:
        """Nothing serves from now on; later changes are ignored."""
        for metrics in self._models.values():
            metrics.ready.set(0)
        await self.servicer.enter_graceful_shutdown()

    def end(self) -> None:
        """Nobody is told anything any more."""
        self.servicer.end_watches()

    async def _set_model(self, model: str, *, serving: bool) -> None:
        self._models[model].ready.set(int(serving))
        await self.servicer.set(f"{PACKAGE}/{model}", _SERVING if serving else _NOT_SERVING)

    async def _set_services(self, *, serving: bool) -> None:
        for service in self._services:
            await self.servicer.set(service, _SERVING if serving else _NOT_SERVING)
