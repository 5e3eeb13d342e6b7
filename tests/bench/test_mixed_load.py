"""How requests of mixed lengths are put into batches, and whose time counts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from bench.engines.engine import Generated, Ids
from bench.mixed_load import batched_seconds, service_throughput
from bench.open_loop import arrival_offsets
from bench.service import Service
from bench.workload import Request


class FakeEngine:
    def __init__(self) -> None:
        self.calls: list[tuple[list[int], int]] = []

    def generate(self, prompts: Sequence[Ids], new_tokens: int) -> Generated:
        self.calls.append(([len(prompt) for prompt in prompts], new_tokens))
        return Generated([], [float(n + 1) for n in range(new_tokens)])


REQUESTS = [Request((1,) * length, new) for length, new in ((3, 2), (5, 9), (4, 4))]


def test_a_batch_runs_to_its_longest_output() -> None:
    engine = FakeEngine()
    assert batched_seconds(engine, REQUESTS, batch=2) == 9 + 4
    assert engine.calls == [([3, 5], 9), ([4], 4)]


async def test_a_service_is_given_everything_at_once() -> None:
    running, most = 0, 0

    async def call(request: Request) -> list[float]:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        return [0.0] * request.new_tokens

    @asynccontextmanager
    async def opened() -> AsyncIterator[Service]:
        yield call

    result = await service_throughput("formerd", opened(), REQUESTS)
    assert result.tokens == 15
    assert most == len(REQUESTS)


def test_arrivals_come_at_the_rate_that_is_asked_for() -> None:
    offsets = arrival_offsets(4000, rate=5.0)
    assert offsets == sorted(offsets)
    assert offsets[-1] / 4000 == pytest.approx(1 / 5, rel=0.1)
