"""Engines whose runs fail again and again: callers notice only of the failures that are theirs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

import grpc
import pytest

from client.aio import AsyncClient
from client.errors import CallFailed
from client.load.answer import Written
from client.load.question import EmbedQuestion
from client.load.reference import Reference
from tests.e2e.server_process import ServerProcess
from tests.load.accounts import assert_balanced, assert_faultless, assert_logged
from tests.load.callers import PATIENT, put_under_load
from tests.load.finding import Finding

_LIKELY = 100.0  # added to a logit: the token is chosen whatever the model thinks
_SURVIVED = {
    "a prefill chunk failed and is computed again": "prefill chunks",
    "a decode step failed and is computed row by row": "decode steps",
    "a batch failed and is encoded text by text": "batches",
}


async def unused_token(target: str, references: Iterable[Reference]) -> int:
    """An id that occurs in no question and no answer."""
    used: set[int] = set()
    async with AsyncClient(target) as client:
        for reference in references:
            asked = reference.question
            texts = asked.texts if isinstance(asked, EmbedQuestion) else (asked.prompt,)
            for text in texts:
                used |= {token.id for token in await client.tokenize(text, model=asked.model)}
            if isinstance(reference.answer, Written):
                used |= set(reference.answer.token_ids)
        smallest = min(model.vocabulary_size for model in await client.models())
    return next(token for token in range(smallest - 1, 0, -1) if token not in used)


async def faults(
    server: ServerProcess,
    references: Sequence[Reference],
    bad_token: int,
    *,
    clients: int,
    seconds: float,
) -> Finding:
    """On `tests.load.faulty_server`: clients call it, and beside them others ask what always fails.

    The references are of a server whose runs succeed.
    """
    load = asyncio.create_task(
        put_under_load(server.target, references, PATIENT, clients=clients, seconds=seconds)
    )
    culprits = 0
    async with AsyncClient(server.target) as client:
        models = {task: model.name for model in await client.models() for task in model.tasks}
        while not load.done():
            await _embed_badly(client, models["embed"], bad_token)
            await _generate_badly(client, models["generate"], bad_token)
            culprits += 3
        tally = await load
        assert await client.health() == "SERVING"
    after = await asyncio.to_thread(server.wait_until_quiet)
    assert_faultless(tally)
    assert_logged(server, tally)
    assert_balanced(after)
    survived = {what: len(server.events(event)) for event, what in _SURVIVED.items()}
    assert all(survived.values()), survived
    return Finding(
        f"engine faults injected under the load of {clients} clients for {seconds:g} s",
        {
            **{f"{what} that failed": str(count) for what, count in survived.items()},
            "requests that make every run fail": f"{culprits}, each told so, and nobody else",
        },
        tally,
    )


async def _embed_badly(client: AsyncClient, model: str, bad_token: int) -> None:
    """The bad text fails alone, between two that are right."""
    ids = [token.id for token in await client.tokenize("the lion", model=model)]
    alone = (await client.embed(ids, model=model)).vectors[0]
    result = await client.embed(ids, [bad_token, *ids], ids, model=model)
    first, bad, last = result.items
    assert bad.error is not None
    assert bad.error.code is grpc.StatusCode.INTERNAL
    assert first.vector == pytest.approx(alone, abs=1e-6)
    assert last.vector == pytest.approx(alone, abs=1e-6)


async def _generate_badly(client: AsyncClient, model: str, bad_token: int) -> None:
    """It fails with the prompt, or as soon as the token is chosen."""
    for prompt, bias in (([5, bad_token], {}), ([5, 6], {bad_token: _LIKELY})):
        with pytest.raises(CallFailed) as caught:
            await client.generate(prompt, model=model, logit_bias=bias, max_new_tokens=8)
        assert caught.value.code is grpc.StatusCode.INTERNAL
        assert "injected" not in caught.value.message.lower()
