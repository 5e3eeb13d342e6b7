"""A little of everything that a server can be asked, refused and cancelled calls included."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from itertools import islice

from client.errors import CallFailed
from client.sync import Client

_PREFIX = "The same beginning of many prompts. " * 10  # more than one prefill chunk
_PAUSE = 0.05  # seconds


def run_light_load(target: str, embedder: str, generator: str, seconds: float) -> None:
    """Calls a server from a few threads, for so many seconds."""
    deadline = time.monotonic() + seconds
    with ThreadPoolExecutor() as pool, Client(target) as client:
        runs = [
            pool.submit(_repeat, work, client, model, deadline)
            for work, model in (
                (_embed, embedder),
                (_generate, generator),
                (_stream, generator),
                (_abandon, generator),
                (_mistake, generator),
            )
        ]
        for run in runs:
            run.result()


def _repeat(
    work: Callable[[Client, str], None], client: Client, model: str, deadline: float
) -> None:
    while time.monotonic() < deadline:
        work(client, model)


def _embed(client: Client, model: str) -> None:
    client.embed("a text", "and a longer one, of more tokens", model=model)
    time.sleep(_PAUSE)


def _generate(client: Client, model: str) -> None:
    client.generate(f"{_PREFIX}How does it go on?", model=model, max_new_tokens=8)


def _stream(client: Client, model: str) -> None:
    for _ in client.stream(f"{_PREFIX}And now?", model=model, max_new_tokens=24):
        pass


def _abandon(client: Client, model: str) -> None:
    """Goes after two events of many."""
    with closing(client.stream("long", model=model, max_new_tokens=200)) as events:
        list(islice(events, 2))
    time.sleep(_PAUSE)


def _mistake(client: Client, model: str) -> None:
    """Asks for a prompt that is longer than the model takes."""
    with suppress(CallFailed):
        client.generate([5] * 10_000, model=model)
    time.sleep(10 * _PAUSE)
