"""RPC-02: clients that ping keep their connections, however little else they say."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import grpc
import pytest
from formerd.v1.embedding_pb2_grpc import EmbeddingServiceStub

from tests.contract.stubs import embed_request
from tests.e2e.server_process import ServerProcess

READY = grpc.ChannelConnectivity.READY


def options(ping_seconds: int) -> list[tuple[str, int]]:
    """Of a client with a connection of its own that pings, with or without a call."""
    return [
        ("grpc.keepalive_time_ms", ping_seconds * 1000),
        ("grpc.keepalive_timeout_ms", 5000),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.use_local_subchannel_pool", 1),
    ]


async def stay_connected(channel: grpc.aio.Channel, seconds: float) -> None:
    """Fails if the connection is lost in that time."""
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0:
        assert channel.get_state() is READY
        try:
            async with asyncio.timeout(left):
                await channel.wait_for_state_change(READY)
        except TimeoutError:
            return


async def silent_call(target: str, ping_seconds: int, seconds: float) -> grpc.ChannelConnectivity:
    """What becomes of the connection while a stream says nothing, and is used again."""
    async with grpc.aio.insecure_channel(target, options(ping_seconds)) as channel:
        stream: Any = EmbeddingServiceStub(channel).EmbedStream()
        await stream.write(embed_request("a"))
        assert (await stream.read()).response.embeddings
        await stay_connected(channel, seconds)
        await stream.write(embed_request("a"))
        assert (await stream.read()).response.embeddings
        await stream.done_writing()
        assert await stream.read() is grpc.aio.EOF
        return channel.get_state()


async def idle(target: str, ping_seconds: int, seconds: float) -> grpc.ChannelConnectivity:
    """What becomes of the connection while there is no call, and is used again."""
    async with grpc.aio.insecure_channel(target, options(ping_seconds)) as channel:
        embed = EmbeddingServiceStub(channel).Embed
        assert (await embed(embed_request("a"))).embeddings
        await stay_connected(channel, seconds)
        assert (await embed(embed_request("a"))).embeddings
        return channel.get_state()


@pytest.mark.full
@pytest.mark.timeout(400)
async def test_silence_ends_no_connection(server: ServerProcess) -> None:
    """A call silent for 90 seconds and a connection idle for 5 minutes, pinging every 10 and 30."""
    states = await asyncio.gather(
        *(silent_call(server.target, seconds, 90) for seconds in (10, 30)),
        *(idle(server.target, seconds, 300) for seconds in (10, 30)),
    )
    assert states == [READY] * 4
