"""Health and metrics while everything heavy happens at once (MEM-03)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise

import grpc
from formerd.v1 import models_pb2
from grpc_health.v1 import health_pb2

from tests.contract.answers import gather_stream
from tests.contract.stubs import Stubs, embed_request, generate_request
from tests.e2e.server_process import ServerProcess
from tests.load.accounts import assert_balanced
from tests.load.finding import Finding, spread
from tests.load.timed_server import EVENT

_STREAMS, _WATCHES = 50, 10
_TICK_SECONDS = 0.1
_MEGABYTE = "word " * 200_000
_LONGEST_CALLBACK = 0.1  # seconds of the processor
_QUIET_SECONDS = 60
_SERVING = health_pb2.HealthCheckResponse.SERVING


async def responsiveness(
    server: ServerProcess,
    embedder: str,
    generator: str,
    *,
    lists: int,
    large_texts: int,
    tokens: int,
) -> Finding:
    """The largest lists, texts of a megabyte, 50 streams and idle watches, and a probe beside them.

    On `tests.load.timed_server`: no callback may have held its event loop up.
    """
    probe, over = Probe(server), asyncio.Event()
    async with grpc.aio.insecure_channel(server.target) as channel, idle_watches(server.target):
        work = Work(Stubs(channel), embedder, generator, tokens)
        await work.prepare()
        async with asyncio.TaskGroup() as probing:
            probing.create_task(probe.repeat(over))
            await asyncio.gather(
                *(work.embed_list() for _ in range(lists)),
                *(work.embed_large_text() for _ in range(large_texts)),
                *(work.stream() for _ in range(_STREAMS)),
            )
            over.set()
    assert_balanced(await asyncio.to_thread(server.wait_until_quiet, _QUIET_SECONDS))
    slow = server.events(EVENT)
    assert not [line for line in slow if line["processor_seconds"] > _LONGEST_CALLBACK], slow
    return Finding(
        f"health and metrics every 100 ms beside {lists} of the largest lists "
        f"({work.most_texts:,} texts), {large_texts} texts of 1 MB, "
        f"{_STREAMS} streams and {_WATCHES} idle watches",
        {
            "probes, all answered": str(len(probe.health)),
            "health, p50 and p99": spread(sorted(probe.health)),
            "metrics, p50 and p99": spread(sorted(probe.metrics)),
            "longest time between two answers": f"{probe.longest_gap:.2f} s",
            "callbacks that took more than 100 ms of the processor": "0",
            "callbacks that took more than 100 ms by the clock": str(len(slow)),
        },
    )


@asynccontextmanager
async def idle_watches(target: str) -> AsyncIterator[None]:
    """Watches of the server's health that hear nothing more until the block is left."""
    async with grpc.aio.insecure_channel(target) as channel:
        health = Stubs(channel).health
        watches = [health.Watch(health_pb2.HealthCheckRequest()) for _ in range(_WATCHES)]
        for watch in watches:
            assert (await watch.read()).status == _SERVING
        yield
        assert not any(watch.done() for watch in watches), "a watch was lost"


class Probe:
    """Asks for health and metrics, as often as an impatient operator.

    Attributes:
        health, metrics: seconds that each answer took.
    """

    def __init__(self, server: ServerProcess) -> None:
        self._server = server
        self._answered: list[float] = []
        self.health: list[float] = []
        self.metrics: list[float] = []

    @property
    def longest_gap(self) -> float:
        """Seconds between two answers of health."""
        return max(after - before for before, after in pairwise(self._answered))

    async def repeat(self, over: asyncio.Event) -> None:
        """Asks until it is over."""
        async with grpc.aio.insecure_channel(self._server.target) as channel:
            health = Stubs(channel).health
            while not over.is_set():
                began = time.monotonic()
                answer = await health.Check(health_pb2.HealthCheckRequest())
                assert answer.status == _SERVING
                self._answered.append(time.monotonic())
                await asyncio.to_thread(self._server.metrics)
                self.health.append(self._answered[-1] - began)
                self.metrics.append(time.monotonic() - self._answered[-1])
                await asyncio.sleep(_TICK_SECONDS)


class Work:
    """The heaviest calls that there are; each checks its answer.

    Attributes:
        most_texts: that a call to embed may have.
    """

    def __init__(self, stubs: Stubs, embedder: str, generator: str, tokens: int) -> None:
        self._stubs = stubs
        self._embedder = embedder
        self._request = generate_request("the", tokens=tokens, model=generator)
        self._large = embed_request(_MEGABYTE, model=embedder, truncate=True)

    async def prepare(self) -> None:
        """Finds out what the server takes, and what it answers alone."""
        asked = models_pb2.GetModelRequest(model=self._embedder)
        limits = (await self._stubs.models.GetModel(asked)).model.limits
        self.most_texts = limits.max_inputs
        self._list = embed_request(*["cat"] * self.most_texts, model=self._embedder)
        self._answer = await self._stubs.generation.Generate(self._request)

    async def embed_list(self) -> None:
        """As many texts as a call may have."""
        response = await self._stubs.embedding.Embed(self._list)
        assert len(response.embeddings) == self.most_texts
        assert all(item.HasField("vector") for item in response.embeddings)

    async def embed_large_text(self) -> None:
        """A text of which only the beginning counts."""
        [item] = (await self._stubs.embedding.Embed(self._large)).embeddings
        assert item.HasField("vector")
        assert item.truncated

    async def stream(self) -> None:
        """A stream, read to its end."""
        answer = await gather_stream(self._stubs.generation.GenerateStream(self._request))
        assert answer.completions == self._answer.completions
