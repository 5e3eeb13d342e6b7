"""Runs a load: callers one after the other, or calls that come when they like."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from uuid import uuid4

from client.aio import AsyncClient
from client.connection import Connection
from client.load.arrivals import arrivals
from client.load.attempt import Attempt, End, Outcome
from client.load.attempts import draw_attempts
from client.load.call import carry_out
from client.load.judge import Judge
from client.load.profile import Plan
from client.load.reference import Reference
from client.load.tally import Tally

_PAUSE_SECONDS = 0.5  # of a caller who finds no server


async def run_load(
    plan: Plan, connection: Connection, references: Sequence[Reference], tally: Tally
) -> None:
    """Makes the calls of a plan, and waits for all of them to end.

    What comes of them is added to `tally` as it comes.
    """
    async with AsyncExitStack() as stack:
        # Each client is somebody else, and has a connection of its own.
        own = replace(connection, shared=False)
        clients = [await stack.enter_async_context(AsyncClient(own)) for _ in range(plan.clients)]
        load = _Load(plan, clients, references, tally)
        await (load.closed_loop() if plan.rate is None else load.open_loop(plan.rate))


class _Load:
    def __init__(
        self,
        plan: Plan,
        clients: Sequence[AsyncClient],
        references: Sequence[Reference],
        tally: Tally,
    ) -> None:
        self._plan = plan
        self._clients = clients
        self._attempts: Iterator[Attempt] = draw_attempts(plan, references, f"load-{uuid4().hex}")
        self._judge = Judge(references)
        self._tally = tally
        self._began = time.perf_counter()

    async def closed_loop(self) -> None:
        """Every client makes one call after the other."""
        async with asyncio.TaskGroup() as callers:
            for client in self._clients:
                callers.create_task(self._call_again_and_again(client))

    async def open_loop(self, rate: float) -> None:
        """Calls begin at random moments, whatever has become of those before."""
        draw = random.Random(self._plan.seed)
        offsets = arrivals(rate, self._plan.seconds, ramp=self._plan.ramp, draw=draw)
        async with asyncio.TaskGroup() as calls:
            for number, offset in enumerate(offsets):
                due = self._began + offset
                await asyncio.sleep(due - time.perf_counter())
                calls.create_task(self._call(self._clients[number % len(self._clients)], due))

    async def _call_again_and_again(self, client: AsyncClient) -> None:
        end = self._began + self._plan.seconds
        while (now := time.perf_counter()) < end:
            outcome = await self._call(client, now)
            await asyncio.sleep(_pause(outcome))

    async def _call(self, client: AsyncClient, due: float) -> Outcome:
        attempt = next(self._attempts)
        self._tally.begun[attempt.kind] += 1
        outcome = await carry_out(attempt, client, due)
        self._tally.add(outcome, due - self._began, self._judge.fault(outcome))
        return outcome


def _pause(outcome: Outcome) -> float:
    """Seconds until a caller makes its next call: one that is told when to come back obeys."""
    if outcome.end is End.UNAVAILABLE:
        return _PAUSE_SECONDS
    if outcome.end is End.REFUSED and outcome.failure and outcome.failure.retry_after:
        return outcome.failure.retry_after
    return 0.0
