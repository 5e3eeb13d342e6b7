from __future__ import annotations

import asyncio
from contextlib import aclosing

import grpc
import pytest

from client.aio import AsyncClient
from client.connection import Connection
from client.errors import CallFailed
from client.retry import Retry
from tests.client.scripted_server import EndlessGeneration, Script, fail, serve


async def test_an_answer_and_the_token_that_asked_for_it() -> None:
    script = Script()
    with serve(script) as target:
        async with AsyncClient(Connection(target, token="secret")) as client:
            results = await asyncio.gather(*(client.embed("x" * i) for i in range(1, 5)))
    assert [result.vectors[0][0] for result in results] == [1.0, 2.0, 3.0, 4.0]
    assert script.metadata["authorization"] == "Bearer secret"


async def test_a_failure_carries_code_message_and_delay() -> None:
    script = Script([fail(grpc.StatusCode.RESOURCE_EXHAUSTED, "the queue is full", 1.5)])
    with serve(script) as target:
        async with AsyncClient(target) as client:
            with pytest.raises(CallFailed, match="the queue is full") as caught:
                await client.embed("a")
    assert caught.value.code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert caught.value.retry_after == 1.5


async def test_retries_end_with_the_answer_or_the_last_failure() -> None:
    script = Script([fail(grpc.StatusCode.UNAVAILABLE, f"try {i}") for i in range(4)])
    with serve(script) as target:
        async with AsyncClient(target, retry=Retry(retries=2, first_delay=0.01)) as client:
            with pytest.raises(CallFailed, match="try 2"):
                await client.embed("a")
            assert (await client.embed("a")).items
    assert script.calls == 5


async def test_cancelling_the_task_cancels_the_call() -> None:
    generation = EndlessGeneration()
    with serve(Script(), generation) as target:
        async with AsyncClient(target) as client:

            async def read_forever() -> None:
                async for _ in client.stream("hello"):
                    started.set()

            started = asyncio.Event()
            task = asyncio.create_task(read_forever())
            await started.wait()
            task.cancel()
            assert await asyncio.to_thread(generation.cancelled.wait, 5.0)


async def test_leaving_a_stream_early_cancels_the_call() -> None:
    generation = EndlessGeneration()
    with serve(Script(), generation) as target:
        async with AsyncClient(target) as client:
            async with aclosing(client.stream("hello")) as events:
                async for _ in events:
                    break
            assert await asyncio.to_thread(generation.cancelled.wait, 5.0)


async def test_a_stream_that_fails_raises_after_what_it_brought() -> None:
    with serve(Script(), EndlessGeneration()) as target:
        async with AsyncClient(target) as client:
            events = client.stream("refused")
            await anext(events)
            with pytest.raises(CallFailed, match="nobody read"):
                await anext(events)


async def test_unary_failures_name_the_field() -> None:
    with serve(Script(), EndlessGeneration()) as target:
        async with AsyncClient(target) as client:
            with pytest.raises(CallFailed, match=r"sampling\.top_p"):
                await client.generate("p", top_p=2.0)
