"""Readiness of the server, its services and its models, as grpc.health.v1 and metrics tell it."""

from __future__ import annotations

from collections.abc import Iterable

from grpc_health.v1 import health, health_pb2

from server.metrics import ModelMetrics
from server.models import Model

PACKAGE = "formerd.v1"
_SERVING = health_pb2.HealthCheckResponse.SERVING
_NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


class Health:
    """The health of `""`, of each service by its full name, and of each model.

    A model is `formerd.v1/<model>`. The whole is healthy while every model is.
    """

    def __init__(self, services: Iterable[str]) -> None:
        self.servicer = health.aio.HealthServicer()
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

    async def _set_model(self, model: str, *, serving: bool) -> None:
        self._models[model].ready.set(int(serving))
        await self.servicer.set(f"{PACKAGE}/{model}", _SERVING if serving else _NOT_SERVING)

    async def _set_services(self, *, serving: bool) -> None:
        for service in self._services:
            await self.servicer.set(service, _SERVING if serving else _NOT_SERVING)
