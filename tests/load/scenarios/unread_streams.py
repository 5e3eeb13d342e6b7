"""Streams that nobody reads (STR-04)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import grpc
from formerd.v1 import generation_pb2 as pb

from tests.contract.stubs import Stubs, generate_request
from tests.contract.waiting import measured
from tests.e2e.server_process import MetricsSnapshot, ServerProcess
from tests.load.finding import Finding
from tests.load.process_watch import TRANSPORT_THREADS, ProcessWatch

STREAMS = 50
_CONNECTIONS = 5
_TOKENS = 250
_NORMAL_TOKENS = 20
_MOST_GROWTH = 150 << 20  # bytes: 50 streams of 250 tokens with 20 alternatives each
_MANY_ALTERNATIVES = pb.Output(logprobs=True, top_logprobs=20)  # about a kilobyte an event
_UNREAD = generate_request("x", tokens=_TOKENS, output=_MANY_ALTERNATIVES)
# Windows of their smallest size, and a connection for each channel.
_NARROW = [
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.http2.bdp_probe", 0),
    ("grpc.http2.lookahead_bytes", 1024),
]


@asynccontextmanager
async def unread(target: str, count: int) -> AsyncIterator[None]:
    """Streams of which nothing is read, until the block is left: then they are cancelled."""
    async with AsyncExitStack() as stack:
        channels = [
            await stack.enter_async_context(grpc.aio.insecure_channel(target, _NARROW))
            for _ in range(_CONNECTIONS)
        ]
        stubs = [Stubs(channel) for channel in channels]
        streams = [
            stubs[index % _CONNECTIONS].generation.GenerateStream(_UNREAD) for index in range(count)
        ]
        await asyncio.gather(*(stream.wait_for_connection() for stream in streams))
        yield
        for stream in streams:
            stream.cancel()


async def unread_streams(server: ServerProcess, slots: int) -> Finding:
    """They cost bounded memory and nobody's time, and no slot once they are generated."""
    watch = ProcessWatch(server.process.pid)
    async with grpc.aio.insecure_channel(server.target) as channel:
        normal = Stubs(channel).generation
        request = generate_request("x", tokens=_NORMAL_TOKENS)
        alone = await normal.Generate(request)
        watch.sample()
        async with unread(server.target, STREAMS):
            for _ in range(5):
                assert (await normal.Generate(request)).completions == alone.completions
                watch.sample()
            snapshot = await measured(server, _nothing_is_generated)
            watch.sample()
            # Generated to the end, and not read: else nothing was tested.
            in_flight = snapshot.total("formerd_requests_in_flight", {"method": "GenerateStream"})
            assert in_flight > STREAMS / 2
            generated = snapshot.total("formerd_tokens_total", {"kind": "generated"})
            assert generated == STREAMS * _TOKENS + 6 * _NORMAL_TOKENS
            all_slots = await normal.Generate(generate_request("x", tokens=20, n=slots))
            assert all_slots.usage.completion_tokens == 20 * slots
        assert (await normal.Generate(request)).completions == alone.completions
    await asyncio.to_thread(server.wait_until_quiet)
    watch.sample()
    growth = max(watch.resident) - watch.resident[0]
    assert growth < _MOST_GROWTH
    assert watch.threads[-1] <= watch.threads[0] + TRANSPORT_THREADS
    return Finding(
        f"{STREAMS} streams of {_TOKENS} tokens whose clients never read",
        {
            "still in flight when all was generated": f"{in_flight:.0f}",
            "memory that they took": f"{growth / 1e6:.0f} MB",
            "a normal client's answers beside them": "the same as alone",
        },
    )


def _nothing_is_generated(now: MetricsSnapshot) -> bool:
    """Whether no slot is used or waited for, whoever still has to read."""
    used = now.total("formerd_slots", {"state": "used"})
    return not used + now.total("formerd_queue_depth")
