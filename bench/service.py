"""formerd as a service that takes requests at any time: its engine here, or a server over gRPC."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from prometheus_client import CollectorRegistry

from bench.workload import NEW_TOKENS, PROMPT_TOKENS, Request
from client.aio import AsyncClient
from client.results import Chunk as ClientChunk
from launch.daemon import daemon
from server.artefact import load_artefact
from server.decoder_engine import DecoderEngine
from server.limits import DEFAULT_SLOTS, bytes_per_position, decoder_limits
from server.metrics import Metrics
from server.processors import usable_processors
from server.request import (
    Chunk,
    Failed,
    GenerationEvent,
    GenerationRequest,
    Sampling,
    Stopping,
    Summary,
)
from server.tokenizer import Tokenizer

_CAPACITY = PROMPT_TOKENS[1] + NEW_TOKENS[1]  # the longest request
# From a request to when each of its tokens arrived, in seconds of `time.perf_counter`.
Service = Callable[[Request], Awaitable[list[float]]]


@asynccontextmanager
async def engine_service(
    artefact: Path, sampling: Sampling | None = None
) -> AsyncIterator[Service]:
    """The decoder engine, called by the event loop that runs; greedy without `sampling`."""
    engine = open_engine(artefact, asyncio.get_running_loop())
    await asyncio.to_thread(engine.start)

    async def call(request: Request) -> list[float]:
        arrivals: list[float] = []
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def deliver(event: GenerationEvent) -> None:
            match event:
                case Chunk():
                    arrivals.extend([time.perf_counter()] * len(event.token_ids))
                case Summary():
                    ended.set_result(None)
                case Failed():
                    ended.set_exception(event.error)

        stopping = Stopping(max_new_tokens=request.new_tokens)
        engine.submit(GenerationRequest(request.prompt, sampling or Sampling(), stopping), deliver)
        await ended
        return arrivals

    try:
        yield call
    finally:
        await asyncio.to_thread(engine.stop)


@asynccontextmanager
async def grpc_service(artefact: Path) -> AsyncIterator[Service]:
    """A server in a process of its own, called by the asynchronous client."""
    with daemon([artefact], "--max-length", str(_CAPACITY)) as server:
        async with AsyncClient(server.target) as client:

            async def call(request: Request) -> list[float]:
                arrivals: list[float] = []
                events = client.stream(
                    request.prompt,
                    max_new_tokens=request.new_tokens,
                    temperature=0.0,
                    ignore_eos=True,
                )
                async for event in events:
                    if isinstance(event, ClientChunk):
                        arrivals.extend([time.perf_counter()] * len(event.token_ids))
                return arrivals

            yield call


def open_engine(artefact_directory: Path, loop: asyncio.AbstractEventLoop) -> DecoderEngine:
    """An engine with the server's default slots, and room for the longest request."""
    artefact = load_artefact(artefact_directory)
    manifest = artefact.manifest
    cache_bytes = DEFAULT_SLOTS * _CAPACITY * bytes_per_position(manifest)
    return DecoderEngine(
        artefact,
        Tokenizer(artefact.tokenizer, manifest.vocabulary_size),
        decoder_limits(manifest, cache_bytes),
        Metrics(CollectorRegistry(), [manifest.name]).model(manifest.name),
        loop,
        threads=usable_processors(),
    )
