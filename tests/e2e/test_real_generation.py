"""SmolLM2 through the server, against transformers' greedy generate."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import pytest

from client.aio import AsyncClient
from client.options import Message
from client.results import Chunk, Summary
from client.wire import Prompt
from tests.e2e.greedy_reference import Continuation, GreedyReference
from tests.e2e.real_artefacts import on_real_checkpoints
from tests.e2e.real_texts import real_texts
from tests.e2e.server_process import ServerProcess

pytestmark = on_real_checkpoints

# Around the chunks of 64 that prompts are computed in, and far from them.
_TOKEN_COUNTS = (
    *(1, 2, 3, 4, 5, 8, 13, 17, 31, 32, 33, 48, 63, 64, 65, 80),
    *(96, 100, 127, 128, 129, 160, 191, 192, 200, 256, 257, 300, 384, 450, 512, 600),
)
_REPRESENTATIVE = (0, 1, 6, 12, 13, 18, 25, 31)
_MOST_EXCUSED = 2

_COUNTS = [
    pytest.param((_REPRESENTATIVE, 32), id="8x32"),
    pytest.param((tuple(range(32)), 64), id="32x64", marks=pytest.mark.full),
]


@dataclass(frozen=True)
class Case:
    """One prompt, how far to continue it, and what transformers continues it with."""

    prompt: Prompt
    prompt_tokens: int
    count: int
    ignore_eos: bool
    expected: Continuation


@dataclass(frozen=True)
class Answer:
    """What the server continued a prompt with."""

    text: str
    token_ids: tuple[int, ...]
    prompt_tokens: int


Ask = Callable[[AsyncClient, Case], Awaitable[Answer]]


@pytest.fixture(scope="module")
def reference() -> GreedyReference:
    return GreedyReference()


@pytest.fixture(scope="module", params=_COUNTS)
def cases(request: pytest.FixtureRequest, reference: GreedyReference) -> list[Case]:
    indexes, count = request.param
    texts = real_texts(reference.tokenizer.backend_tokenizer, _TOKEN_COUNTS)
    return [_case(reference, index, texts[index], count) for index in indexes]


async def ask_unary(client: AsyncClient, case: Case) -> Answer:
    result = await client.generate(
        case.prompt, model="smollm2", max_new_tokens=case.count, ignore_eos=case.ignore_eos
    )
    (completion,) = result.completions
    return Answer(completion.text, completion.token_ids, result.summary.usage.prompt_tokens)


async def ask_stream(client: AsyncClient, case: Case) -> Answer:
    text, prompt_tokens = "", 0
    ids: list[int] = []
    events = client.stream(
        case.prompt, model="smollm2", max_new_tokens=case.count, ignore_eos=case.ignore_eos
    )
    async for event in events:
        if isinstance(event, Chunk):
            text += event.text
            ids += event.token_ids
        elif isinstance(event, Summary):
            prompt_tokens = event.usage.prompt_tokens
    return Answer(text, tuple(ids), prompt_tokens)


async def test_alone_as_transformers(cases: list[Case], real_server: ServerProcess) -> None:
    async with AsyncClient(real_server.target) as client:
        unary = [await ask_unary(client, case) for case in cases]
        streamed = [await ask_stream(client, case) for case in cases]
    assert streamed == unary
    assert_as_transformers(cases, unary)


async def test_sixteen_at_a_time_as_transformers(
    cases: list[Case], real_server: ServerProcess
) -> None:
    before = real_server.metrics()
    async with AsyncClient(real_server.target) as client:
        sixteen = asyncio.Semaphore(16)

        async def ask_in_turn(ask: Ask, case: Case) -> Answer:
            async with sixteen:
                return await ask(client, case)

        asked = [(ask, case) for case in cases for ask in (ask_unary, ask_stream)]
        answers = await asyncio.gather(*(ask_in_turn(ask, case) for ask, case in asked))
    after = real_server.metrics()
    assert answers[0::2] == answers[1::2]  # unary, stream
    assert_as_transformers(cases, answers[0::2])
    labels = {"model": "smollm2", "phase": "decode"}
    steps = after.value("formerd_batch_sequences_count", labels) - before.value(
        "formerd_batch_sequences_count", labels
    )
    rows = after.value("formerd_batch_sequences_sum", labels) - before.value(
        "formerd_batch_sequences_sum", labels
    )
    assert rows / steps > 4  # else they have not shared their steps, and nothing was tested


def assert_as_transformers(cases: list[Case], answers: list[Answer]) -> None:
    assert [answer.prompt_tokens for answer in answers] == [case.prompt_tokens for case in cases]
    differing = [
        (case, answer)
        for case, answer in zip(cases, answers, strict=True)
        if answer.token_ids != case.expected.token_ids
    ]
    for case, answer in differing:
        assert case.expected.excuses(answer.token_ids), (case, answer)
    assert len(differing) <= _MOST_EXCUSED


def _case(reference: GreedyReference, index: int, text: str, count: int) -> Case:
    """Every fourth prompt is a chat; half of the prompts go on past an end token."""
    chat, ignore_eos = index % 4 == 1, index % 8 >= 4
    ids = reference.encode_chat(text) if chat else reference.encode(text)
    expected = reference.continue_greedily(ids, count, ignore_eos=ignore_eos)
    prompt: Prompt = [Message("user", text)] if chat else text
    return Case(prompt, len(ids), count, ignore_eos, expected)
