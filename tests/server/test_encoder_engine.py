"""The encoder engine on a tiny artefact: texts share batches, and nothing but time is shared."""

from __future__ import annotations

import asyncio
import random
import shutil
import time
from pathlib import Path

import numpy as np
import pytest

from server.errors import (
    DeadlinePassed,
    Draining,
    InputTooLong,
    Interrupted,
    InvalidInput,
    NonFinite,
    QueueFull,
    QueueTokensFull,
    StepFailed,
)
from server.request import EmbedOutcome, Failed
from server.trace import Did
from tests.artefacts import encoder_artefact, read_weight, reseal, write_weight
from tests.server.engines import encoding, vector

BAD = 222  # a token whose embedding is infinite in the poisoned artefact


def ids(length: int, start: int = 10) -> list[int]:
    return [start + (i * 7) % 60 for i in range(length)]


@pytest.fixture(scope="module")
def poisoned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """PAD-02: one rare token's embedding is infinite (the norms bear with any finite one)."""
    directory = tmp_path_factory.mktemp("artefact") / "poisoned"
    shutil.copytree(encoder_artefact(), directory)
    weights = read_weight(directory, "encoder.embedding.tokens.weight")
    weights[BAD] = np.inf
    write_weight(directory, "encoder.embedding.tokens.weight", weights)
    reseal(directory)
    return directory


async def test_a_text_gets_the_same_vector_whoever_shares_its_batch() -> None:
    """PAD-03."""
    text = ids(8)
    async with encoding(encoder_artefact(), max_batch_tokens=4096) as encoder:
        alone = vector(await encoder.embed(text))
        assert np.isclose(np.linalg.norm(alone), 1.0)
        for others in (
            [text] * 31,
            [ids(24, start=30)] * 31,
            [ids(length) for length in range(5, 16)],
        ):
            first, *_, last = await encoder.embed_together([text], *[[o] for o in others], [text])
            for outcome in (first, last):
                assert isinstance(outcome, EmbedOutcome)
                assert np.linalg.norm(vector(outcome) - alone) <= 1e-6


async def test_a_call_with_more_texts_than_a_batch_is_split_and_keeps_its_order() -> None:
    lengths = random.Random(1).sample(range(1, 200), 60)
    texts = [ids(length) for length in lengths]
    async with encoding(encoder_artefact(), max_batch_tokens=256) as encoder:
        outcome = await encoder.embed(*texts)
        batches = encoder.metric("batch_sequences_count", phase="encode")
        assert 60 / 8 < batches < 60
        assert encoder.metric("tokens_total", kind="embedded") == sum(lengths)
        for index in (0, 17, 59):
            alone = vector(await encoder.embed(texts[index]))
            assert np.linalg.norm(vector(outcome, index) - alone) <= 1e-6
        assert outcome.encode_seconds > 0
        assert outcome.queue_seconds >= 0


async def test_a_small_call_waits_for_one_batch_of_a_large_one() -> None:
    async with encoding(encoder_artefact(), max_batch_tokens=64) as encoder:
        async with encoder.held():
            large, whole = encoder.submit([ids(60)] * 5)
            small, answer = encoder.submit([ids(3)])
        for arrival in (whole, answer):
            assert isinstance(await asyncio.wait_for(arrival, 30), EmbedOutcome)
        order = [event.tickets[0] for event in encoder.trace.of(Did.ENCODE)]
        assert order[1:] == [large, small, *[large] * 4]


async def test_texts_wait_for_others_until_the_batch_is_full() -> None:
    async with encoding(encoder_artefact(), max_batch_tokens=64, max_wait_seconds=60.0) as encoder:
        _, early = encoder.submit([ids(32)])
        assert isinstance(await encoder.outcome([ids(32)]), EmbedOutcome)
        assert isinstance(await early, EmbedOutcome)
        assert encoder.metric("batch_sequences_count", phase="encode") == 1


@pytest.mark.parametrize("bad", range(8))
async def test_one_text_without_a_finite_vector_fails_alone(poisoned: Path, bad: int) -> None:
    """SCH-02: at every place in the batch."""
    async with encoding(poisoned) as encoder:
        expected = [vector(await encoder.embed(ids(9, start=20 + i))) for i in range(8)]
        calls = [[ids(9, start=20 + i)] for i in range(8)]
        calls[bad] = [[5, BAD, 6, 7]]
        outcomes = await encoder.embed_together(*calls)
        for place, outcome in enumerate(outcomes):
            assert isinstance(outcome, EmbedOutcome)
            if place == bad:
                assert outcome.results[0].vector is None
                assert isinstance(outcome.results[0].error, NonFinite)
            else:
                assert np.linalg.norm(vector(outcome) - expected[place]) <= 1e-6
        assert encoder.metric("nonfinite_outputs_total") == 1


async def test_a_bad_text_leaves_its_neighbours_in_the_same_call_alone(poisoned: Path) -> None:
    """PAD-02."""
    async with encoding(poisoned) as encoder:
        normal = vector(await encoder.embed(ids(12)))
        outcome = await encoder.embed(ids(12), [BAD] * 12, ids(12))
        assert isinstance(outcome.results[1].error, NonFinite)
        for place in (0, 2):
            assert np.linalg.norm(vector(outcome, place) - normal) <= 1e-6
        assert encoder.metric("nonfinite_outputs_total") == 1


async def test_a_batch_that_raises_is_encoded_text_by_text() -> None:
    async with encoding(encoder_artefact()) as encoder:
        expected = vector(await encoder.embed(ids(9)))
        encoder.runner.poison = {200}
        outcomes = await encoder.embed_together([ids(9), [200] * 9], [ids(9)])
        assert all(isinstance(outcome, EmbedOutcome) for outcome in outcomes)
        first, second = outcomes
        assert isinstance(first, EmbedOutcome)
        assert isinstance(second, EmbedOutcome)
        assert isinstance(first.results[1].error, StepFailed)
        assert np.linalg.norm(vector(first) - expected) <= 1e-6
        assert np.linalg.norm(vector(second) - expected) <= 1e-6
        assert encoder.engine.alive


async def test_a_callers_input_never_counts_against_the_model() -> None:
    async with encoding(encoder_artefact()) as encoder:
        encoder.runner.poison = {200}
        outcome = await encoder.embed([200], [200, 5])
        assert all(isinstance(result.error, StepFailed) for result in outcome.results)
        assert encoder.engine.alive
        assert len(vector(await encoder.embed(ids(4)))) == encoder.engine.dimensions


async def test_an_engine_that_cannot_run_at_all_dies_and_leaves_nobody_waiting() -> None:
    async with encoding(encoder_artefact()) as encoder:
        async with encoder.held():
            arrivals = [encoder.submit([ids(length)])[1] for length in (5, 6, 200)]
            encoder.runner.broken = True
        for arrival in arrivals:
            outcome = await asyncio.wait_for(arrival, 30)
            assert isinstance(outcome, Failed)
            assert isinstance(outcome.error, StepFailed)
        assert not encoder.engine.alive
        with pytest.raises(Draining):
            encoder.submit([ids(5)])
        assert encoder.metric("queue_depth") == 0


async def test_what_can_never_be_encoded_is_refused_at_once() -> None:
    async with encoding(encoder_artefact()) as encoder:
        with pytest.raises(InputTooLong, match=r"inputs\[1\] has 513 tokens"):
            encoder.submit([ids(3), ids(513)])
        with pytest.raises(InvalidInput, match=r"inputs\[0\] has no tokens"):
            encoder.submit([[]])
        vector(await encoder.embed(ids(512)))


async def test_the_queue_is_bounded_in_calls_and_in_tokens() -> None:
    async with encoding(encoder_artefact(), max_queue=2, max_queue_tokens=40) as encoder:
        async with encoder.held():
            _, first = encoder.submit([ids(30)])
            with pytest.raises(QueueTokensFull):
                encoder.submit([ids(11)])
            _, second = encoder.submit([ids(10)])
            with pytest.raises(QueueFull):
                encoder.submit([ids(1)])
        for arrival in (first, second):
            assert isinstance(await asyncio.wait_for(arrival, 30), EmbedOutcome)
        assert encoder.metric("queue_depth") == 0
        await encoder.embed(ids(40))


async def test_a_deadline_ends_a_call_that_waits() -> None:
    async with encoding(encoder_artefact()) as encoder:
        outcome = await encoder.outcome([ids(3)], deadline=time.monotonic() - 1)
        assert isinstance(outcome, Failed)
        assert isinstance(outcome.error, DeadlinePassed)
        assert encoder.metric("queue_depth") == 0


async def test_a_cancelled_call_is_neither_encoded_nor_answered() -> None:
    async with encoding(encoder_artefact()) as encoder:
        async with encoder.held():
            ticket, arrival = encoder.submit([ids(3), ids(4)])
            encoder.engine.cancel(ticket)
            encoder.engine.cancel(ticket)
        vector(await encoder.embed(ids(5)))
        assert not arrival.done()
        assert encoder.metric("requests_cancelled_total", stage="queued") == 1
        assert encoder.metric("tokens_total", kind="embedded") == 1 + 5
        assert all(ticket not in event.tickets for event in encoder.trace.of(Did.ENCODE))
        assert encoder.metric("queue_depth") == 0


async def test_draining_completes_and_stopping_interrupts() -> None:
    async with encoding(encoder_artefact()) as encoder:
        _, accepted = encoder.submit([ids(3)])
        encoder.engine.drain()
        with pytest.raises(Draining):
            encoder.submit([ids(3)])
        assert isinstance(await asyncio.wait_for(accepted, 30), EmbedOutcome)
    async with encoding(encoder_artefact(), max_wait_seconds=60.0) as encoder:
        _, left = encoder.submit([ids(3)])
        await asyncio.to_thread(encoder.engine.stop)
        outcome = await asyncio.wait_for(left, 30)
        assert isinstance(outcome, Failed)
        assert isinstance(outcome.error, Interrupted)
