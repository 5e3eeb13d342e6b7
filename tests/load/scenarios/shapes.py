"""Calls of ever new shapes, some of them given up: memory stays where it is (MEM-01)."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass

from client.aio import AsyncClient
from client.load.answer import Vectors
from client.results import Model
from tests.e2e.server_process import ServerProcess
from tests.load.finding import Finding
from tests.load.process_watch import ProcessWatch

_MOST_GROWTH = 8 << 20  # bytes, or
_MOST_GROWTH_SHARE = 0.01  # of what there is: flat
_CALLERS = 4
_TEXTS = 32  # of a call, at most
_LENGTHS = (*range(1, 33), 64, 128, 200, 250)  # tokens; the longest are rare
_TEXTS_OF_A_LENGTH = 3
_LONG = 0.01  # the share of texts beyond 32 tokens
_CANCELLED = 0.1  # the share of calls that are given up
_PROMPT_TOKENS = 200
_NEW_TOKENS = 8


@dataclass(frozen=True)
class Text:
    """Ids, and their vector alone."""

    ids: tuple[int, ...]
    vector: tuple[float, ...]


async def embed_shapes(server: ServerProcess, embedder: str, *, calls: int) -> Finding:
    """Calls of 1 to 32 texts of 1 to 32 tokens, some longer; every vector is checked."""
    draw = random.Random(0)
    async with AsyncClient(server.target) as client:
        model = await client.model(embedder)
        texts = await _texts(client, model, draw)
        short, long = (
            [text for text in texts if (len(text.ids) > 32) is is_long] for is_long in (False, True)
        )

        async def call() -> None:
            chosen = [
                draw.choice(long if draw.random() < _LONG else short)
                for _ in range(draw.randint(1, _TEXTS))
            ]
            result = await client.embed(*(text.ids for text in chosen), model=model.name)
            wanted = Vectors(tuple(text.vector for text in chosen))
            assert Vectors(tuple(result.vectors)).agrees(wanted)

        watch = await _repeat(server, call, calls, draw)
    return _finding(f"{calls:,} calls to embed, of 1 to {_TEXTS} texts of all lengths", watch)


async def generate_shapes(server: ServerProcess, generator: str, *, calls: int) -> Finding:
    """Prompts of random lengths."""
    draw = random.Random(0)
    async with AsyncClient(server.target) as client:
        model = await client.model(generator)

        async def call() -> None:
            ids = _ids(draw, model, draw.randint(1, _PROMPT_TOKENS))
            tokens = draw.randint(1, _NEW_TOKENS)
            result = await client.generate(
                ids, model=model.name, max_new_tokens=tokens, ignore_eos=True
            )
            assert result.summary.usage.completion_tokens == tokens

        watch = await _repeat(server, call, calls, draw)
    return _finding(f"{calls:,} prompts of 1 to {_PROMPT_TOKENS} tokens", watch)


async def _texts(client: AsyncClient, model: Model, draw: random.Random) -> list[Text]:
    texts = []
    for length in _LENGTHS:
        for _ in range(_TEXTS_OF_A_LENGTH):
            ids = _ids(draw, model, length)
            [vector] = (await client.embed(ids, model=model.name)).vectors
            texts.append(Text(ids, vector))
    return texts


def _ids(draw: random.Random, model: Model, length: int) -> tuple[int, ...]:
    return tuple(draw.randrange(model.vocabulary_size) for _ in range(length))


async def _repeat(
    server: ServerProcess, call: Callable[[], Awaitable[None]], calls: int, draw: random.Random
) -> ProcessWatch:
    """Makes so many calls, a few at a time; memory must not grow over the last half of them."""
    watch, coming = ProcessWatch(server.process.pid), iter(range(calls))

    async def call_again_and_again() -> None:
        for _ in coming:
            moment = draw.uniform(0, 0.05) if draw.random() < _CANCELLED else None
            with suppress(TimeoutError):
                async with asyncio.timeout(moment):
                    await call()
            watch.sample()

    await asyncio.gather(*(call_again_and_again() for _ in range(_CALLERS)))
    await asyncio.to_thread(server.wait_until_quiet)
    flat = max(_MOST_GROWTH, _MOST_GROWTH_SHARE * watch.resident[-1])
    assert watch.late_growth < flat, watch.late_growth
    return watch


def _finding(title: str, watch: ProcessWatch) -> Finding:
    megabytes = [resident / 1e6 for resident in watch.resident]
    half = len(megabytes) // 2
    return Finding(
        f"{title}, a tenth of them given up",
        {
            "resident memory after the first half": f"{max(megabytes[:half]):.0f} MB",
            "at the end": f"{max(megabytes[half:]):.0f} MB",
        },
        watch=watch,
    )
