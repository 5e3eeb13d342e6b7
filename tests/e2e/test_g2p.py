"""The repository's own model through a server: held-out words, as the oracle says them."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass

import pytest
import torch
from tokenizers import Tokenizer

from client.__main__ import main as client_main
from client.aio import AsyncClient
from client.results import Chunk, Completion
from examples.g2p.__main__ import main as g2p_main
from examples.g2p.dictionary import read_dictionary
from examples.g2p.split import split
from model.beam_search import search_beams
from model.checkpoint import Checkpoint
from model.checkpoints import load_checkpoint
from model.generate import Source, generate_greedy, remember
from tests.e2e.real_artefacts import G2P, g2p_artefact
from tests.e2e.server_process import ServerProcess, running_server

pytestmark = [pytest.mark.xdist_group("served g2p"), pytest.mark.timeout(900)]

_CALLERS = 32
_WIDTH = 4
_ALONE = 5  # words that are asked for with nobody else there
_COUNTS = [
    pytest.param(32, id="32 words"),
    pytest.param(1000, id="1000 words", marks=pytest.mark.full),
]


@dataclass(frozen=True)
class Spoken:
    """A target: its ids, with the end, and its text."""

    token_ids: tuple[int, ...]
    text: str


class Oracle:
    """The published checkpoint in eager PyTorch, one word at a time."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        assert checkpoint.decoder_start_id is not None
        assert checkpoint.target_tokenizer_json is not None
        self._spelling = Tokenizer.from_buffer(checkpoint.tokenizer_json)
        self._phones = Tokenizer.from_buffer(checkpoint.target_tokenizer_json)
        self._model = checkpoint.build()
        self._start = [checkpoint.decoder_start_id]
        self._eos_ids = checkpoint.eos_ids
        self._most: int = checkpoint.generation["max_new_tokens"]

    def greedy(self, word: str) -> list[Spoken]:
        """The likeliest token each time."""
        source = self._source(word)
        ids = generate_greedy(
            self._model, self._start, self._most, eos_ids=self._eos_ids, source=source
        )
        return [self._spoken(ids)]

    def beams(self, word: str) -> list[Spoken]:
        """The best beams, best first."""
        source = self._source(word)
        beams = search_beams(
            self._model, self._start, self._most, width=_WIDTH, eos_ids=self._eos_ids, source=source
        )
        return [self._spoken(beam.tokens) for beam in beams]

    def _source(self, word: str) -> Source:
        ids = self._spelling.encode(word).ids
        return remember(self._model, torch.tensor([ids]), torch.tensor([len(ids)]))

    def _spoken(self, ids: Sequence[int]) -> Spoken:
        return Spoken(tuple(ids), self._phones.decode(ids))


@dataclass(frozen=True)
class Case:
    """A word and all that may be asked about it."""

    word: str
    greedy: list[Spoken]
    beams: list[Spoken]


Ask = Callable[[AsyncClient, str], Awaitable[list[Spoken]]]


async def ask_unary(client: AsyncClient, word: str) -> list[Spoken]:
    return _spoken((await client.generate(word)).completions)


async def ask_stream(client: AsyncClient, word: str) -> list[Spoken]:
    chunks = [event async for event in client.stream(word) if isinstance(event, Chunk)]
    ids = tuple(token_id for chunk in chunks for token_id in chunk.token_ids)
    return [Spoken(ids, "".join(chunk.text for chunk in chunks))]


async def ask_beams(client: AsyncClient, word: str) -> list[Spoken]:
    return _spoken((await client.generate(word, beam_width=_WIDTH, n=_WIDTH)).completions)


def _spoken(completions: Sequence[Completion]) -> list[Spoken]:
    return [Spoken(each.token_ids, each.text) for each in completions]


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    with running_server([g2p_artefact()]) as server:
        yield server


@pytest.fixture(scope="module")
def oracle() -> Oracle:
    return Oracle(load_checkpoint(G2P))


@pytest.fixture(scope="module", params=_COUNTS)
def cases(request: pytest.FixtureRequest, oracle: Oracle) -> list[Case]:
    """Held-out words; with one thread, or PyTorch would wait for busy neighbours."""
    entries = random.Random(0).sample(split(read_dictionary()).test, request.param)
    torch.set_num_threads(1)
    return [
        Case(entry.word, oracle.greedy(entry.word), oracle.beams(entry.word)) for entry in entries
    ]


async def test_alone_as_the_oracle(cases: list[Case], server: ServerProcess) -> None:
    async with AsyncClient(server.target) as client:
        for case in cases[:_ALONE]:
            assert await ask_unary(client, case.word) == case.greedy
            assert await ask_stream(client, case.word) == case.greedy
            assert await ask_beams(client, case.word) == case.beams


async def test_from_many_callers_as_the_oracle(cases: list[Case], server: ServerProcess) -> None:
    """Greedy ones, unary and streamed, and beams share their steps in any order."""
    asked = [(ask, case) for case in cases for ask in (ask_unary, ask_stream, ask_beams)]
    random.Random(1).shuffle(asked)
    before = server.metrics()
    answers = await by_callers(server.target, [(ask, case.word) for ask, case in asked])
    after = server.wait_until_quiet()
    for (ask, case), answer in zip(asked, answers, strict=True):
        assert answer == (case.beams if ask is ask_beams else case.greedy), case.word
    labels = {"model": "g2p", "phase": "decode"}
    steps, rows = (
        after.value(f"formerd_batch_sequences_{what}", labels)
        - before.value(f"formerd_batch_sequences_{what}", labels)
        for what in ("count", "sum")
    )
    assert rows / steps > 4  # else they have not shared their steps, and nothing was tested


async def by_callers(target: str, asked: Sequence[tuple[Ask, str]]) -> list[list[Spoken]]:
    """Each caller with a connection of his own takes the next question when he has an answer."""
    answers: list[list[Spoken]] = [[] for _ in asked]
    pending = iter(enumerate(asked))

    async def call() -> None:
        async with AsyncClient(target) as client:
            for index, (ask, word) in pending:
                answers[index] = await ask(client, word)

    await asyncio.gather(*(call() for _ in range(_CALLERS)))
    return answers


@pytest.mark.full
def test_error_rates_are_those_of_the_card(
    server: ServerProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    assert g2p_main(["evaluate", "--target", server.target, "--json"]) == 0
    served = json.loads(capsys.readouterr().out)
    assert served == json.loads((G2P / "metrics.json").read_text())


def test_a_word_on_the_command_line(
    oracle: Oracle, server: ServerProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["--target", server.target, "generate", "worcestershire", "--model", "g2p"]
    assert client_main(command) == 0
    [spoken] = oracle.greedy("worcestershire")
    assert capsys.readouterr().out == f"{spoken.text}\n"
    assert spoken.text.startswith("W ")
