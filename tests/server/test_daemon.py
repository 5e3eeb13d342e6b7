"""A model that dies takes the server with it; the rest of its life is in tests/contract."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import grpc
import pytest
import structlog
from grpc_health.v1 import health_pb2
from grpc_health.v1.health_pb2_grpc import HealthStub
from prometheus_client import CollectorRegistry
from structlog.testing import LogCapture

from server.calls import Calls
from server.daemon import Daemon, Exit
from server.encoder_engine import EncoderEngine
from server.metrics import Metrics
from server.models import Model, Models
from server.settings import Address, Settings
from server.stop_signals import StopSignals
from server.tokenizer import Tokenizer
from tests.checkpoints import byte_tokenizer
from tests.server.manifests import encoder_manifest

SETTINGS = Settings(
    directories=(Path("unused"),),
    listen=Address("127.0.0.1", 0),
    metrics_listen=Address("127.0.0.1", 0),
    device=None,
    threads=1,
    slots=1,
    max_length=None,
    cache_bytes=None,
    prefix_cache_bytes=None,
    memory_limit=None,
    max_batch_tokens=None,
    max_queue=1,
    max_queue_tokens=None,
    max_wait_ms=0.0,
    prefill_chunk=None,
    max_request_seconds=5.0,
    max_message_bytes=1 << 20,
    max_response_bytes=1 << 20,
    grace_seconds=5.0,
    tls=None,
    auth_token_file=None,
    insecure_tokens=False,
    expect_digest={},
    log_format="json",
    log_text=False,
    trace_endpoint=None,
    check=False,
)


@dataclass
class MortalEngine:
    """Lives until it is told to die."""

    alive: bool = True
    provider: str = "none"

    def start(self) -> None:
        """It is ready at once."""

    def stop(self) -> None:
        """There is nothing to end."""


async def test_a_model_that_dies_ends_the_server_with_a_failure() -> None:
    engine, logged, registry = MortalEngine(), LogCapture(), CollectorRegistry()
    metrics = Metrics(registry, ["encoder"])
    model = Model(
        encoder_manifest("encoder"),
        Tokenizer(byte_tokenizer().to_str().encode()),
        metrics.model("encoder"),
        encoder=cast("EncoderEngine", engine),
    )
    log: Any = structlog.wrap_logger(None, [logged], structlog.make_filtering_bound_logger(0))
    models = Models([model])
    calls = Calls(models, metrics, log, max_request_seconds=5)
    daemon = Daemon(SETTINGS, models, calls, StopSignals(), log)
    serving = asyncio.create_task(daemon.serve("unused"))
    async with asyncio.timeout(10):
        while not any(line["event"] == "serving" for line in logged.entries):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        address = next(line["listen"] for line in logged.entries if line["event"] == "serving")
        assert registry.get_sample_value("formerd_ready", {"model": "encoder"}) == 1
        async with grpc.aio.insecure_channel(address) as channel:
            health: Any = HealthStub(channel)
            watch = health.Watch(health_pb2.HealthCheckRequest(service="formerd.v1/encoder"))
            assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVING
            engine.alive = False
            assert (await watch.read()).status == health_pb2.HealthCheckResponse.NOT_SERVING
            assert await serving is Exit.FAILED
            with pytest.raises(grpc.aio.AioRpcError, match="the server has stopped"):
                await watch.read()
    assert registry.get_sample_value("formerd_ready", {"model": "encoder"}) == 0
