"""CXL-01: a caller that goes, however it goes, gives its slot back within a step."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Iterator

import grpc
import pytest

from tests.artefacts import learned_decoder_artefact
from tests.contract.stubs import Stubs, generate_request
from tests.e2e.server_process import ROOT, ServerProcess, running_server

MODEL = "tiny-learned-decoder"
TOKENS = 1000  # more than a second of work
LONG = generate_request("x", tokens=TOKENS)
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
    async with grpc.aio.insecure_channel(two_slots.target) as channel:
        yield Stubs(channel)


def cancelled(server: ServerProcess, stage: str) -> float:
    labels = {"model": MODEL, "stage": stage}
    return server.metrics().value("formerd_requests_cancelled_total", labels)


def generated(server: ServerProcess) -> float:
    labels = {"model": MODEL, "kind": "generated"}
    return server.wait_until_quiet().value("formerd_tokens_total", labels)


async def test_cancelling_a_stream_frees_its_slot(
    two_slots: ServerProcess, stubs_of_two: Stubs
) -> None:
    before, tokens = cancelled(two_slots, "running"), generated(two_slots)
    for _ in range(10):
        stream = stubs_of_two.generation.GenerateStream(LONG)
        for _ in range(5):
            await stream.read()
        stream.cancel()
    assert generated(two_slots) - tokens < 10 * TOKENS / 2
    assert cancelled(two_slots, "running") == before + 10


async def test_killing_a_client_frees_its_slot(
    two_slots: ServerProcess, stubs_of_two: Stubs
) -> None:
    before, tokens = cancelled(two_slots, "running"), generated(two_slots)
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
    assert cancelled(two_slots, "running") == before + 1
    after = await stubs_of_two.generation.Generate(generate_request("x", tokens=8))
    assert after.usage.completion_tokens == 8


async def test_cancelling_in_the_queue_leaves_the_queue(
    two_slots: ServerProcess, stubs_of_two: Stubs
) -> None:
    before = cancelled(two_slots, "queued")
    running = [stubs_of_two.generation.GenerateStream(LONG) for _ in range(2)]
    for stream in running:
        await stream.read()
    waiting = [stubs_of_two.generation.GenerateStream(LONG) for _ in range(6)]
    async with asyncio.timeout(5):
        while two_slots.metrics().total("formerd_queue_depth") < 3:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    for stream in (*waiting, *running):
        stream.cancel()
    two_slots.wait_until_quiet()
    assert cancelled(two_slots, "queued") >= before + 3


async def test_a_stream_that_is_not_read_holds_nobody_up(
    two_slots: ServerProcess, stubs_of_two: Stubs
) -> None:
    """STR-04: generation does not wait for the reader."""
    unread = [stubs_of_two.generation.GenerateStream(LONG) for _ in range(4)]
    normal = await stubs_of_two.generation.Generate(generate_request("x", tokens=8))
    assert normal.usage.completion_tokens == 8
    async with asyncio.timeout(20):
        while two_slots.metrics().total("formerd_slots", {"state": "used"}):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    for stream in unread:
        stream.cancel()


async def test_what_began_equals_what_ended(two_slots: ServerProcess, stubs_of_two: Stubs) -> None:
    """MET-01: 60 calls of mixed outcomes, tallied on both sides."""
    before = outcomes(two_slots)
    tally: dict[str, int] = {}

    async def call(index: int) -> None:
        request = generate_request("x", tokens=20 if index % 4 else TOKENS)
        if index % 5 == 0:
            request.sampling.top_p = 0
        if index % 7 == 0:
            request.model = MODEL
        timeout = 0.3 if index % 4 == 0 else None
        try:
            await stubs_of_two.generation.Generate(request, timeout=timeout)
            code = "OK"
        except grpc.aio.AioRpcError as error:
            code = error.code().name
        tally[code] = tally.get(code, 0) + 1

    await asyncio.gather(*(call(index) for index in range(60)))
    after = outcomes(two_slots)
    assert {code: after[code] - before[code] for code in after if after[code] != before[code]} == (
        tally
    )
    assert {"OK", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED"} <= set(tally)


def outcomes(server: ServerProcess) -> dict[str, float]:
    """Calls to Generate by how they ended, checked against how many began."""
    snapshot = server.wait_until_quiet()
    found = {
        dict(labels)["code"]: value
        for (name, labels), value in snapshot.samples.items()
        if name == "formerd_requests_total" and {("model", MODEL), ("method", "Generate")} <= labels
    }
    labels = {"model": MODEL, "method": "Generate"}
    assert snapshot.value("formerd_requests_started_total", labels) == sum(found.values())
    return found
