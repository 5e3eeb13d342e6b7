"""Streams that go on while something else happens, and must not notice it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from formerd.v1 import generation_pb2 as pb

from tests.contract.answers import gather_stream
from tests.contract.stubs import Stubs, generate_request

LIVE = (
    generate_request("the", tokens=150),
    generate_request("and the", tokens=150, sampling=pb.Sampling(temperature=1.5, seed=5)),
    pb.GenerateRequest(
        chat=pb.Chat(messages=[pb.ChatMessage(role="user", content="hello")]),
        stopping=pb.Stopping(max_new_tokens=150, ignore_eos=True),
    ),
    generate_request([7] * 100, tokens=150, output=pb.Output(logprobs=True, top_logprobs=2)),
)


@asynccontextmanager
async def undisturbed(
    stubs: Stubs, requests: Sequence[pb.GenerateRequest] = LIVE
) -> AsyncIterator[None]:
    """Keeps one stream of each request running, again and again, until the block is left.

    Each of them, from its first event to its last, has to be what it is alone.
    """
    alone = [await gather_stream(stubs.generation.GenerateStream(each)) for each in requests]
    over = asyncio.Event()

    async def repeat(request: pb.GenerateRequest, expected: pb.GenerateResponse) -> None:
        while not over.is_set():
            answer = await gather_stream(stubs.generation.GenerateStream(request))
            assert answer.completions == expected.completions

    async with asyncio.TaskGroup() as running:
        for request, expected in zip(requests, alone, strict=True):
            running.create_task(repeat(request, expected))
        try:
            yield
        finally:
            over.set()
