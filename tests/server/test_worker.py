"""Small conversions run at once, large or heavy ones beside the event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest
from formerd.v1 import models_pb2 as pb
from prometheus_client import CollectorRegistry

from server.errors import InvalidInput
from server.metrics import Metrics, ModelMetrics
from server.worker import Worker

SMALL, LARGE = pb.TokenizeRequest(text="x"), pb.TokenizeRequest(text="x" * 10_000)


@pytest.fixture
def worker() -> Iterator[Worker]:
    worker = Worker()
    yield worker
    worker.close()


@pytest.fixture
def metrics() -> ModelMetrics:
    return Metrics(CollectorRegistry(), ["m"]).model("m")


@pytest.mark.parametrize(
    ("message", "heavy", "here"),
    [(SMALL, False, True), (LARGE, False, False), (SMALL, True, False)],
)
async def test_where_a_conversion_runs(
    message: pb.TokenizeRequest, heavy: bool, here: bool, worker: Worker, metrics: ModelMetrics
) -> None:
    thread, seconds = await worker.convert(
        message, threading.get_ident, metrics.tokenize_duration, heavy=heavy
    )
    assert (thread == threading.get_ident()) is here
    assert seconds >= 0


async def test_a_large_message_waits_for_no_huge_one(worker: Worker, metrics: ModelMetrics) -> None:
    huge, release = pb.TokenizeRequest(text="x" * 1_000_000), threading.Event()
    held = [
        asyncio.create_task(worker.convert(huge, release.wait, metrics.tokenize_duration))
        for _ in range(4)
    ]
    try:
        async with asyncio.timeout(5):
            await worker.convert(LARGE, threading.get_ident, metrics.tokenize_duration)
        assert not any(task.done() for task in held)
    finally:
        release.set()
    await asyncio.gather(*held)


@pytest.mark.parametrize("message", [SMALL, LARGE])
async def test_a_refusal_reaches_the_caller(
    message: pb.TokenizeRequest, worker: Worker, metrics: ModelMetrics
) -> None:
    def refuse() -> None:
        raise InvalidInput("no")

    with pytest.raises(InvalidInput, match="no"):
        await worker.convert(message, refuse, metrics.tokenize_duration)


async def test_work_runs_beside_the_loop(worker: Worker) -> None:
    assert await worker.run(threading.get_ident) != threading.get_ident()
