"""A storm of random requests, and of callers that leave: nobody's answer, count or slot is lost."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass

import grpc
import pytest
from formerd.v1 import generation_pb2 as pb

from tests.artefacts import decoder_artefact
from tests.contract.answers import without_times
from tests.contract.stubs import Stubs, generate_request
from tests.e2e.server_process import MetricsSnapshot, ServerProcess, running_server
from tests.load.attempt import POSSIBLE, Attempt, Outcome, carry_out, random_attempt
from tests.load.process_watch import TRANSPORT_THREADS, ProcessWatch
from tests.load.random_requests import SLOTS

pytestmark = [pytest.mark.xdist_group("storm"), pytest.mark.timeout(900)]

MODEL = "tiny-decoder"
PREFIX_BYTES = 1 << 20  # 32 chunks: soon full, so that chunks come and go
FLAGS = (
    *("--slots", str(SLOTS), "--max-length", "512", "--threads", "1"),
    *("--prefix-cache-bytes", str(PREFIX_BYTES)),
)
CALLERS, CHANNELS = 24, 3
MOST_GROWTH = 8 << 20  # bytes
COUNTS = [300, pytest.param(2000, marks=pytest.mark.full)]


@dataclass(frozen=True)
class Storm:
    """A storm that is over, and the server that it went over."""

    server: ServerProcess
    outcomes: list[Outcome]
    watch: ProcessWatch
    after: MetricsSnapshot

    def counted(self) -> dict[str, str]:
        """The status that the server logged for each request that it saw, by id."""
        lines = self.server.events("request")
        assert len({line["id"] for line in lines}) == len(lines)
        return {line["id"]: line["status"] for line in lines if line["id"].startswith("storm")}


@pytest.fixture(scope="module", params=COUNTS)
def storm(request: pytest.FixtureRequest) -> Iterator[Storm]:
    draw = random.Random(request.param)
    attempts = [random_attempt(draw, f"storm {index}") for index in range(request.param)]
    with running_server([decoder_artefact()], *FLAGS) as server:
        watch = ProcessWatch(server.process.pid)
        outcomes = asyncio.run(rage(attempts, server.target, watch))
        yield Storm(server, outcomes, watch, server.wait_until_quiet())


async def rage(attempts: Sequence[Attempt], target: str, watch: ProcessWatch) -> list[Outcome]:
    """Makes all calls, so many at a time."""
    coming, outcomes = iter(attempts), []

    async def call_again_and_again(stubs: Stubs) -> None:
        for attempt in coming:
            outcomes.append(await carry_out(attempt, stubs))
            watch.sample()

    async with AsyncExitStack() as stack:
        options = [("grpc.use_local_subchannel_pool", 1)]
        channels = [
            await stack.enter_async_context(grpc.aio.insecure_channel(target, options))
            for _ in range(CHANNELS)
        ]
        await asyncio.gather(
            *(call_again_and_again(Stubs(channels[i % CHANNELS])) for i in range(CALLERS))
        )
    return outcomes


async def test_every_answer_is_the_one_of_its_request_alone(storm: Storm) -> None:
    """Alone: one at a time, on a server that has seen nothing of the storm."""
    compared = Counter[str]()
    with running_server([decoder_artefact()], *FLAGS) as server:
        async with grpc.aio.insecure_channel(server.target) as channel:
            stubs = Stubs(channel)
            for outcome in storm.outcomes:
                request = pb.GenerateRequest()
                request.CopyFrom(outcome.attempt.request)
                if outcome.code == "OK":
                    request.sampling.seed = outcome.answer.seed  # as told, where it was drawn
                    alone = await stubs.generation.Generate(request)
                    assert outcome.answer == without_times(alone), request
                elif outcome.answer.completions and reproducible(request):
                    alone = await stubs.generation.Generate(request)
                    for part in outcome.answer.completions:
                        assert_begins(alone.completions[part.index], part)
                else:
                    continue
                compared[outcome.code] += 1
    assert compared["OK"] > len(storm.outcomes) / 2
    assert compared["CANCELLED"] > 0
    labels = {"model": MODEL, "phase": "decode"}
    rows = storm.after.value("formerd_batch_sequences_sum", labels)
    # Else they have not shared their steps, and nothing was tested.
    assert rows > 2 * storm.after.value("formerd_batch_sequences_count", labels)


def reproducible(request: pb.GenerateRequest) -> bool:
    return request.sampling.HasField("seed") or not request.sampling.HasField("temperature")


def assert_begins(whole: pb.Completion, part: pb.Completion) -> None:
    """What was sent before the caller left is the beginning of what it would have got."""
    assert whole.token_ids[: len(part.token_ids)] == part.token_ids
    assert whole.text.startswith(part.text)


def test_every_call_is_counted_once_as_what_it_was(storm: Storm) -> None:
    counted = storm.counted()
    for outcome in storm.outcomes:
        seen = counted.get(outcome.attempt.request.request_id)
        assert seen in POSSIBLE[outcome.code], outcome
        if outcome.attempt.wrong:
            assert outcome.code == "INVALID_ARGUMENT"
        elif outcome.attempt.patient:
            assert outcome.code == "OK"
    assert set(POSSIBLE) == {outcome.code for outcome in storm.outcomes}

    codes = Counter(counted.values())
    for code, count in codes.items():
        assert storm.after.total("formerd_requests_total", {"code": code}) == count
    assert storm.after.total("formerd_requests_total") == len(counted)
    assert storm.after.total("formerd_requests_started_total") == len(counted)
    refused = storm.after.total("formerd_requests_rejected_total")
    assert refused == codes["INVALID_ARGUMENT"]
    gone = storm.after.total("formerd_requests_cancelled_total")
    assert 0 < gone <= codes["CANCELLED"] + codes["DEADLINE_EXCEEDED"]
    answered = [outcome.answer.usage for outcome in storm.outcomes if outcome.code == "OK"]
    assert storm.after.total("formerd_prefix_cache_reused_tokens_total") > 0
    for kind, tokens in (
        ("prompt", sum(usage.prompt_tokens for usage in answered)),
        ("generated", sum(usage.completion_tokens for usage in answered)),
    ):
        assert storm.after.total("formerd_tokens_total", {"kind": kind}) > tokens


async def test_no_slot_is_lost(storm: Storm) -> None:
    """As many rows as there are slots run in every step of a request that needs them all."""
    before = storm.server.wait_until_quiet()
    request = generate_request("the", tokens=20, n=SLOTS)
    async with grpc.aio.insecure_channel(storm.server.target) as channel:
        response = await Stubs(channel).generation.Generate(request, timeout=60)
    after = storm.server.wait_until_quiet()
    assert response.usage.completion_tokens == 20 * SLOTS
    labels = {"model": MODEL, "phase": "decode"}
    names = ("formerd_batch_sequences_sum", "formerd_batch_sequences_count")
    rows, steps = (after.value(name, labels) - before.value(name, labels) for name in names)
    assert rows == SLOTS * steps
    for state, slots in (("used", 0), ("free", SLOTS)):
        assert after.value("formerd_slots", {"model": MODEL, "state": state}) == slots


def test_memory_and_threads_do_not_grow(storm: Storm) -> None:
    assert storm.watch.late_growth < MOST_GROWTH
    assert storm.watch.late_threads <= TRANSPORT_THREADS
