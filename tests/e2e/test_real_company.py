"""SmolLM2: a request's tokens are its own, whoever comes, goes or is cancelled beside it.

GEN-01 and PAD-05 of the case list, on real weights.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest
from tokenizers import Tokenizer

from client.aio import AsyncClient
from client.results import Chunk
from export.manifest import TOKENIZER_FILE
from tests.e2e.real_artefacts import RealArtefacts, on_real_checkpoints
from tests.e2e.real_texts import real_ids
from tests.e2e.server_process import ServerProcess

pytestmark = on_real_checkpoints

_NEW_TOKENS = 24
_PROMPT_TOKENS = {"long": 300, "five": 5, "twenty": 20, "one": 1, "four": 4, "sixty": 60}

Prompts = dict[str, list[int]]
TokenIds = tuple[int, ...]
Tokens = dict[str, TokenIds]


@pytest.fixture(scope="module")
def prompts(real_artefacts: RealArtefacts) -> Prompts:
    tokenizer = Tokenizer.from_file(str(real_artefacts.smollm2 / TOKENIZER_FILE))
    ids = real_ids(tokenizer, tuple(_PROMPT_TOKENS.values()))
    return dict(zip(_PROMPT_TOKENS, ids, strict=True))


@pytest.fixture(scope="module")
def alone(prompts: Prompts, real_server: ServerProcess) -> Tokens:
    async def ask_one_by_one() -> Tokens:
        async with AsyncClient(real_server.target) as client:
            return {name: await generate(client, prompts[name]) for name in prompts}

    return asyncio.run(ask_one_by_one())


async def generate(client: AsyncClient, ids: list[int], count: int = _NEW_TOKENS) -> TokenIds:
    result = await client.generate(ids, model="smollm2", max_new_tokens=count, ignore_eos=True)
    return result.completions[0].token_ids


async def cancel_early(client: AsyncClient, ids: list[int]) -> None:
    """Leaves after three chunks of many."""
    events = client.stream(ids, model="smollm2", max_new_tokens=500, ignore_eos=True)
    async with aclosing(events):
        for _ in range(3):
            await anext(events)


@pytest.mark.parametrize("long_first", [True, False], ids=["first slot", "last slot"])
@pytest.mark.parametrize("cancelled", [True, False], ids=["cancelled", "finished"])
async def test_survivors_of_a_request_that_leaves_early(
    long_first: bool, cancelled: bool, prompts: Prompts, alone: Tokens, real_server: ServerProcess
) -> None:
    staying = ("five", "twenty", "one")
    async with AsyncClient(real_server.target) as client:

        async def leave_early() -> None:
            if cancelled:
                await cancel_early(client, prompts["long"])
            else:
                assert await generate(client, prompts["long"], 2) == alone["long"][:2]

        calls = [generate(client, prompts[name]) for name in staying]
        long = asyncio.create_task(leave_early()) if long_first else None
        await asyncio.sleep(0)  # the order of the tasks is the order of arrival
        tasks = [asyncio.create_task(call) for call in calls]
        await (long or asyncio.create_task(leave_early()))
        newcomer = await generate(client, prompts["sixty"])
        survivors = dict(zip(staying, await asyncio.gather(*tasks), strict=True))
    assert survivors == {name: alone[name] for name in staying}
    assert newcomer == alone["sixty"]


async def test_a_third_joins_two_of_different_lengths(
    prompts: Prompts, alone: Tokens, real_server: ServerProcess
) -> None:
    async with AsyncClient(real_server.target) as client:
        running = client.stream(
            prompts["sixty"], model="smollm2", max_new_tokens=_NEW_TOKENS, ignore_eos=True
        )
        short = asyncio.create_task(generate(client, prompts["four"]))
        ids: list[int] = []
        joined = None
        async for event in running:
            if isinstance(event, Chunk):
                ids += event.token_ids
                joined = joined or asyncio.create_task(generate(client, prompts["twenty"]))
        assert joined is not None
        assert await joined == alone["twenty"]
        assert await short == alone["four"]
    assert tuple(ids) == alone["sixty"]
