"""STR-04: streams that nobody reads cost bounded memory and nobody's time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager

import grpc
import pytest
from formerd.v1 import generation_pb2 as pb

from tests.artefacts import decoder_artefact
from tests.contract.stubs import Stubs, generate_request
from tests.contract.waiting import measured
from tests.e2e.server_process import MetricsSnapshot, ServerProcess, running_server
from tests.load.process_watch import TRANSPORT_THREADS, ProcessWatch

SLOTS = 4
STREAMS, CONNECTIONS = 50, 5
TOKENS = 250
MOST_GROWTH = 150 << 20  # bytes: 50 streams of 250 tokens with 20 alternatives each
MANY_ALTERNATIVES = pb.Output(logprobs=True, top_logprobs=20)  # about a kilobyte an event
UNREAD = generate_request("x", tokens=TOKENS, output=MANY_ALTERNATIVES)
# Windows of their smallest size, and a connection for each channel.
NARROW = [
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.http2.bdp_probe", 0),
    ("grpc.http2.lookahead_bytes", 1024),
]


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    with running_server([decoder_artefact()], "--slots", str(SLOTS), "--threads", "1") as server:
        yield server


@asynccontextmanager
async def unread_streams(target: str, count: int) -> AsyncIterator[None]:
    """Streams of which nothing is read, until the block is left: then they are cancelled."""
    async with AsyncExitStack() as stack:
        channels = [
            await stack.enter_async_context(grpc.aio.insecure_channel(target, NARROW))
            for _ in range(CONNECTIONS)
        ]
        stubs = [Stubs(channel) for channel in channels]
        streams = [
            stubs[index % CONNECTIONS].generation.GenerateStream(UNREAD) for index in range(count)
        ]
        await asyncio.gather(*(stream.wait_for_connection() for stream in streams))
        yield
        for stream in streams:
            stream.cancel()


def nothing_is_generated(now: MetricsSnapshot) -> bool:
    """Whether no slot is used or waited for, whoever still has to read."""
    used = now.total("formerd_slots", {"state": "used"})
    return not used + now.total("formerd_queue_depth")


async def test_fifty_unread_streams_hold_no_slot_and_nobody_up(server: ServerProcess) -> None:
    watch = ProcessWatch(server.process.pid)
    async with grpc.aio.insecure_channel(server.target) as channel:
        normal = Stubs(channel).generation
        request = generate_request("x", tokens=20)
        alone = await normal.Generate(request)
        watch.sample()
        async with unread_streams(server.target, STREAMS):
            for _ in range(5):
                assert (await normal.Generate(request)).completions == alone.completions
                watch.sample()
            snapshot = await measured(server, nothing_is_generated)
            watch.sample()
            # Generated to the end, and not read: else nothing was tested.
            in_flight = snapshot.total("formerd_requests_in_flight", {"method": "GenerateStream"})
            assert in_flight > STREAMS / 2
            generated = snapshot.total("formerd_tokens_total", {"kind": "generated"})
            assert generated == STREAMS * TOKENS + 6 * 20
            all_slots = await normal.Generate(generate_request("x", tokens=20, n=SLOTS))
            assert all_slots.usage.completion_tokens == 20 * SLOTS
        assert (await normal.Generate(request)).completions == alone.completions
    server.wait_until_quiet()
    watch.sample()
    assert max(watch.resident) - watch.resident[0] < MOST_GROWTH
    assert watch.threads[-1] <= watch.threads[0] + TRANSPORT_THREADS


async def test_the_longest_time_of_a_request_ends_a_stream_that_is_not_read() -> None:
    """Nobody leaves: it is the server that ends them, also while their status is not read."""
    flags = ("--slots", str(SLOTS), "--max-request-seconds", "5", "--threads", "1")
    with running_server([decoder_artefact()], *flags) as server:
        async with unread_streams(server.target, 2 * SLOTS):
            name = "formerd_requests_started_total"
            await measured(server, lambda now: now.total(name) == 2 * SLOTS)
            snapshot = await asyncio.to_thread(server.wait_until_quiet, 60)
            late = snapshot.total("formerd_requests_total", {"code": "DEADLINE_EXCEEDED"})
            assert late == 2 * SLOTS
            async with grpc.aio.insecure_channel(server.target) as channel:
                answer = await Stubs(channel).generation.Generate(generate_request("x", tokens=2))
                assert answer.usage.completion_tokens == 2
