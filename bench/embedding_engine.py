"""The server's encoder engine in this process: what it costs without gRPC."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry

from server.artefact import load_artefact
from server.encoder_engine import EncoderEngine
from server.limits import encoder_limits
from server.metrics import Metrics
from server.processors import usable_processors
from server.request import EmbedItem, EmbedOutcome, Failed
from server.tokenizer import Tokenizer


@contextmanager
def embedding_engine(directory: Path) -> Iterator[Callable[[Sequence[str]], Any]]:
    """A function from texts to vectors, with the server's default limits."""
    artefact = load_artefact(directory)
    manifest = artefact.manifest
    tokenizer = Tokenizer(artefact.tokenizer, manifest.vocabulary_size)
    metrics = Metrics(CollectorRegistry(), [manifest.name]).model(manifest.name)
    loop = asyncio.new_event_loop()
    engine = EncoderEngine(
        artefact, encoder_limits(manifest), metrics, loop, threads=usable_processors()
    )

    async def embed(texts: Sequence[str]) -> list[Any]:
        outcome: asyncio.Future[EmbedOutcome | Failed] = loop.create_future()
        ids = [
            tokenizer.truncate(tokenizer.encode(text), manifest.limits.max_input) for text in texts
        ]
        engine.submit([EmbedItem(tuple(each)) for each in ids], outcome.set_result, None)
        result = await outcome
        if isinstance(result, Failed):
            raise result.error
        return [item.vector for item in result.results]

    engine.start()
    try:
        yield lambda texts: loop.run_until_complete(embed(texts))
    finally:
        engine.stop()
        loop.close()
