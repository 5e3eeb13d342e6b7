"""CXL-01: a caller that goes, however it goes, gives its slot back within a step."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Iterator

import grpc
import psutil
import pytest

from tests.artefacts import learned_decoder_artefact
from tests.contract.live_streams import undisturbed
from tests.contract.stubs import Stubs, generate_request
from tests.contract.waiting import measured
from tests.e2e.server_process import ROOT, ServerProcess, running_server
from tests.load.process_watch import TRANSPORT_THREADS

pytestmark = pytest.mark.timeout(900)

MODEL = "tiny-learned-decoder"
TOKENS = 1000  # far more than a client reads before it goes
LONG = generate_request("x", tokens=TOKENS)
LONG_AND_WIDE = generate_request("x", tokens=TOKENS, n=2)  # takes both slots
KNOWN = generate_request("the", tokens=8)
STREAMING_CLIENT = """
import sys, grpc
from formerd.v1.generation_pb2 import GenerateRequest
from formerd.v1.generation_pb2_grpc import GenerationServiceStub

request = GenerateRequest.FromString(bytes.fromhex(sys.argv[2]))
for _ in GenerationServiceStub(grpc.insecure_channel(sys.argv[1])).GenerateStream(request):
    print("event", flush=True)
"""


@pytest.fixture(scope="module")
def two_slots() -> Iterator[ServerProcess]:
    with running_server([learned_decoder_artefact()], "--slots", "2", "--threads", "1") as server:
        yield server


@pytest.fixture
async def stubs_of_two(two_slots: ServerProcess) -> AsyncIterator[Stubs]:
    """Afterwards an answer is what it was before, and no thread has been left behind."""
    async with grpc.aio.insecure_channel(two_slots.target) as channel:
        stubs = Stubs(channel)
        known = await stubs.generation.Generate(KNOWN)
        await asyncio.gather(*(stubs.generation.Generate(KNOWN) for _ in range(20)))
        process = psutil.Process(two_slots.process.pid)
        threads = process.num_threads()
        yield stubs
        two_slots.wait_until_quiet()
        after = await stubs.generation.Generate(KNOWN)
        assert after.completions == known.completions
        assert process.num_threads() <= threads + TRANSPORT_THREADS


def cancelled(server: ServerProcess, stage: str) -> float:
    labels = {"model": MODEL, "stage": stage}
    return server.metrics().value("formerd_requests_cancelled_total", labels)


def generated(server: ServerProcess) -> float:
    labels = {"model": MODEL, "kind": "generated"}
    return server.wait_until_quiet().value("formerd_tokens_total", labels)


@pytest.mark.parametrize("times", [20, pytest.param(200, marks=pytest.mark.full)])
async def test_cancelling_a_stream_frees_its_slot(
    times: int, two_slots: ServerProcess, stubs_of_two: Stubs
) -> None:
    before, tokens = cancelled(two_slots, "running"), generated(two_slots)
    for _ in range(times):
        stream = stubs_of_two.generation.GenerateStream(LONG)
        for _ in range(5):
            await stream.read()
        stream.cancel()
    done = generated(two_slots)
    assert done - tokens < times * TOKENS / 2
    assert cancelled(two_slots, "running") == before + times
    assert generated(two_slots) == done


@pytest.mark.parametrize("times", [2, pytest.param(200, marks=pytest.mark.full)])
async def test_killing_a_client_frees_its_slot(
    times: int, two_slots: ServerProcess, stubs_of_two: Stubs
) -> None:
    before = cancelled(two_slots, "running")
    for _ in range(times):
        tokens = generated(two_slots)
        client = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-c", STREAMING_CLIENT, two_slots.target, LONG.SerializeToString().hex()),
            cwd=ROOT,
            stdout=asyncio.subprocess.PIPE,
        )
        assert client.stdout is not None
        for _ in range(5):
            assert await client.stdout.readline() == b"event\n"
        client.kill()
        await client.wait()
        assert generated(two_slots) - tokens < TOKENS
    assert cancelled(two_slots, "running") == before + times


@pytest.mark.parametrize("rounds", [1, pytest.param(10, marks=pytest.mark.full)])
async def test_cancelling_in_the_queue_leaves_the_queue(
    rounds: int, two_slots: ServerProcess, stubs_of_two: Stubs
) -> None:
    """Twenty a round, behind streams that notice nothing of them."""
    async with undisturbed(stubs_of_two, [LONG_AND_WIDE] * 2):
        for _ in range(rounds):
            before = cancelled(two_slots, "queued")
            waiting = [stubs_of_two.generation.GenerateStream(LONG) for _ in range(20)]
            await measured(two_slots, lambda now: now.total("formerd_queue_depth") >= 15)
            for stream in waiting:
                stream.cancel()
            await measured(two_slots, lambda now: now.total("formerd_requests_in_flight") <= 2)
            assert cancelled(two_slots, "queued") >= before + 5
