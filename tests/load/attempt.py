"""One call of a storm: what is asked for, how the caller behaves, and what comes of it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import grpc
from formerd.v1 import generation_pb2 as pb

from tests.contract.answers import gather_stream, without_times
from tests.contract.stubs import Stubs
from tests.load.random_requests import random_request, spoil

# What the server may have counted, by how a call ended for its caller. One that is given up may
# have succeeded at that very moment, or never have arrived.
POSSIBLE: dict[str, set[str | None]] = {
    "OK": {"OK"},
    "INVALID_ARGUMENT": {"INVALID_ARGUMENT"},
    "CANCELLED": {"CANCELLED", "OK", None},
    "DEADLINE_EXCEEDED": {"DEADLINE_EXCEEDED", "CANCELLED", "OK", None},
}


@dataclass(frozen=True)
class Attempt:
    """A request and what its caller does with it.

    Attributes:
        streamed: whether it is read as a stream.
        wrong: whether it has to be refused.
        most_events: of a stream, how many are read before the caller leaves.
        most_seconds: of a whole answer, how long the caller waits before it leaves.
        timeout: seconds; the call's deadline.
    """

    request: pb.GenerateRequest
    streamed: bool
    wrong: bool = False
    most_events: int | None = None
    most_seconds: float | None = None
    timeout: float | None = None

    @property
    def patient(self) -> bool:
        """Whether the caller waits for the end, whenever it comes."""
        return self.most_events is None and self.most_seconds is None and self.timeout is None


@dataclass(frozen=True)
class Outcome:
    """The status of a call as its caller saw it, and the answer as far as it came."""

    attempt: Attempt
    code: str
    answer: pb.GenerateResponse


def random_attempt(draw: random.Random, request_id: str) -> Attempt:
    """Mostly patient; others leave, set deadlines or ask for nonsense."""
    request = random_request(draw)
    request.request_id = request_id
    streamed = draw.random() < 0.5
    match draw.choices(("patient", "leaves", "deadline", "wrong"), (70, 15, 10, 5))[0]:
        case "leaves" if streamed:
            return Attempt(request, streamed, most_events=draw.randint(1, 40))
        case "leaves":
            return Attempt(request, streamed, most_seconds=draw.uniform(0, 0.2))
        case "deadline":
            return Attempt(request, streamed, timeout=draw.uniform(0.002, 0.2))
        case "wrong":
            spoil(request, draw)
            return Attempt(request, streamed, wrong=True)
    return Attempt(request, streamed)


async def carry_out(attempt: Attempt, stubs: Stubs) -> Outcome:
    """Makes the call."""
    if attempt.streamed:
        return await _stream(attempt, stubs)
    call = stubs.generation.Generate(attempt.request, timeout=attempt.timeout)
    if attempt.most_seconds is not None:
        asyncio.get_running_loop().call_later(attempt.most_seconds, call.cancel)
    answer = pb.GenerateResponse()
    try:
        answer = await call
    except grpc.aio.AioRpcError:
        pass
    except asyncio.CancelledError:
        if not call.cancelled():  # it is not the call that was cancelled
            raise
    return Outcome(attempt, (await call.code()).name, without_times(answer))


async def _stream(attempt: Attempt, stubs: Stubs) -> Outcome:
    call = stubs.generation.GenerateStream(attempt.request, timeout=attempt.timeout)
    answer = await gather_stream(_events(call, attempt.most_events))
    return Outcome(attempt, (await call.code()).name, answer)


async def _events(call: Any, most: int | None) -> AsyncIterator[pb.GenerateEvent]:
    """The events of a stream until it ends, however it ends, or is left."""
    with suppress(grpc.aio.AioRpcError):
        async for event in call:
            yield event
            most = None if most is None else most - 1
            if most == 0:
                call.cancel()
                return
