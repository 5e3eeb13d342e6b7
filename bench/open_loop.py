"""Requests that arrive when they like, whether or not the server keeps up: latencies."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager

import numpy as np
from numpy.typing import NDArray

from bench.results import Latencies, Percentiles
from bench.service import Service
from bench.workload import Request, generated_tokens

LOAD = 0.7  # of the capacity


async def open_loop(
    opened: AbstractAsyncContextManager[Service], requests: Sequence[Request], capacity: float
) -> Latencies:
    """Poisson arrivals at `LOAD` of the capacity, which is in generated tokens a second."""
    rate = LOAD * capacity / (generated_tokens(requests) / len(requests))
    offsets = arrival_offsets(len(requests), rate)
    async with opened as call:
        await call(requests[0])
        began = time.perf_counter()
        timelines = await asyncio.gather(
            *(
                _timeline(call, request, began + offset)
                for request, offset in zip(requests, offsets, strict=True)
            )
        )
    first = np.array([timeline[1] - timeline[0] for timeline in timelines])
    between = np.concatenate([np.diff(timeline[1:]) for timeline in timelines])
    return Latencies(len(requests), rate, _percentiles(first), _percentiles(between))


def arrival_offsets(count: int, rate: float, seed: int = 0) -> list[float]:
    """When requests arrive, in seconds from the beginning, at so many a second on average."""
    chance = random.Random(seed)
    offsets, now = [], 0.0
    for _ in range(count):
        now += chance.expovariate(rate)
        offsets.append(now)
    return offsets


async def _timeline(call: Service, request: Request, due: float) -> list[float]:
    """When a request was due, then when each of its tokens arrived."""
    await asyncio.sleep(max(0.0, due - time.perf_counter()))
    return [due, *await call(request)]


def _percentiles(seconds: NDArray[np.float64]) -> Percentiles:
    median, last = np.percentile(seconds, [50, 99])
    return Percentiles(float(median), float(last))
