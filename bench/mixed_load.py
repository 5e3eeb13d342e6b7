"""Many requests of mixed lengths, all there at once: tokens a second.

formerd takes them as they are, and works on as many as it has slots. The peers take batches in the
order of arrival, each padded to its longest prompt and run to its longest output.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager

from bench.engines.engine import Engine
from bench.results import Throughput
from bench.service import Service
from bench.workload import Request, generated_tokens
from server.limits import DEFAULT_SLOTS

_SAMPLE = 16  # requests by which a peer's batch size is chosen


async def service_throughput(
    system: str, opened: AbstractAsyncContextManager[Service], requests: Sequence[Request]
) -> Throughput:
    """formerd's: everything is submitted at once."""
    async with opened as call:
        await call(requests[0])
        began = time.perf_counter()
        arrivals = await asyncio.gather(*map(call, requests))
        seconds = time.perf_counter() - began
    tokens = sum(map(len, arrivals))
    assert tokens == generated_tokens(requests)
    return Throughput(system, DEFAULT_SLOTS, tokens, seconds)


def peer_throughput(
    name: str, engine: Engine, requests: Sequence[Request], batches: Sequence[int]
) -> Throughput:
    """A peer's, at the batch size that is the fastest for the first requests."""
    engine.generate([requests[0].prompt], 2)
    sample, rest = requests[:_SAMPLE], requests[_SAMPLE:]
    seconds, batch = min((batched_seconds(engine, sample, batch), batch) for batch in batches)
    seconds += batched_seconds(engine, rest, batch)
    return Throughput(name, batch, generated_tokens(requests), seconds)


def batched_seconds(engine: Engine, requests: Sequence[Request], batch: int) -> float:
    """The seconds that a peer takes, so many requests at a time."""
    seconds = 0.0
    for first in range(0, len(requests), batch):
        together = requests[first : first + batch]
        longest = max(request.new_tokens for request in together)
        seconds += engine.generate([request.prompt for request in together], longest).seconds[-1]
    return seconds
