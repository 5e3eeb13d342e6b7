"""What the wire may carry: sizes, metadata, streams, ids; each refused without harm to others."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from formerd.v1 import generation_pb2 as pb
from grpc_health.v1 import health_pb2

from tests.contract.stubs import Stubs, embed_request, error_of, generate_request
from tests.e2e.server_process import ServerProcess

RESOURCE_EXHAUSTED = grpc.StatusCode.RESOURCE_EXHAUSTED
INVALID_ARGUMENT = grpc.StatusCode.INVALID_ARGUMENT
STREAMS = 1024
MIB = 1 << 20
OWN_CONNECTION = [("grpc.use_local_subchannel_pool", 1)]


def peak_memory(server: ServerProcess) -> int:
    """The most that the server has ever had, in bytes."""
    for line in Path(f"/proc/{server.process.pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("the kernel does not tell the peak")


async def test_what_is_small_only_while_compressed_is_refused_unseen(
    server: ServerProcess, stubs: Stubs
) -> None:
    """RPC-01: 100 MB of spaces."""
    request, compression = embed_request(" " * 100_000_000), grpc.Compression.Gzip
    before = peak_memory(server)
    error = await error_of(stubs.embedding.Embed(request, compression=compression))
    assert error.code() is RESOURCE_EXHAUSTED
    assert peak_memory(server) - before < 32 * MIB
    fine = await stubs.embedding.Embed(embed_request("the " * 40), compression=compression)
    assert len(fine.embeddings) == 1


async def test_a_text_to_be_cut_takes_little_memory(server: ServerProcess, stubs: Stubs) -> None:
    """Tokenising 4 MB takes several hundred MB."""
    text = "the cat " * 500_000
    before = peak_memory(server)
    [cut] = (await stubs.embedding.Embed(embed_request(text, truncate=True))).embeddings
    assert peak_memory(server) - before < 128 * MIB
    assert cut.truncated
    [short] = (await stubs.embedding.Embed(embed_request(text[:2000], truncate=True))).embeddings
    np.testing.assert_allclose(cut.vector.values, short.vector.values, atol=1e-6)


@pytest.mark.parametrize("metadata", [[("x-long", "y" * 17_000)], [("x-many", "y" * 20)] * 400])
async def test_too_much_metadata_is_refused(metadata: list[tuple[str, str]], stubs: Stubs) -> None:
    error = await error_of(stubs.embedding.Embed(embed_request("a"), metadata=metadata))
    assert error.code() is RESOURCE_EXHAUSTED
    fine = await stubs.embedding.Embed(embed_request("a"), metadata=[("x", "y" * 8000)])
    assert len(fine.embeddings) == 1


async def test_a_connection_has_so_many_streams_and_the_rest_wait(
    server: ServerProcess, stubs: Stubs
) -> None:
    request = health_pb2.HealthCheckRequest()
    watches = [stubs.health.Watch(request) for _ in range(STREAMS + 8)]
    reads = {asyncio.create_task(watch.read()) for watch in watches}
    async with asyncio.timeout(20):
        while sum(read.done() for read in reads) < STREAMS:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    await asyncio.sleep(0.2)
    assert sum(read.done() for read in reads) == STREAMS
    async with grpc.aio.insecure_channel(server.target, OWN_CONNECTION) as other:
        await Stubs(other).health.Check(request, timeout=5)
    for watch in watches:
        watch.cancel()
    await asyncio.gather(*reads, return_exceptions=True)


async def test_one_id_for_many_requests_mixes_none_up(stubs: Stubs) -> None:
    """An id is the caller's own: nothing is kept under it."""
    prompts = [[7 + index] for index in range(8)]
    alone = [await stubs.generation.Generate(generate_request(prompt)) for prompt in prompts]
    together = await asyncio.gather(
        *(stubs.generation.Generate(generate_request(p, request_id="same")) for p in prompts)
    )
    assert [answer.completions[0].token_ids for answer in together] == [
        answer.completions[0].token_ids for answer in alone
    ]
    assert {answer.request_id for answer in together} == {"same"}


LONG = "x" * 1_000_000
USER = pb.ChatMessage(role="user", content="a")


@pytest.mark.parametrize(
    "fields",
    [
        {"prompt": LONG},
        {"prompt": "a", "model": LONG},
        {"prompt": "a", "request_id": LONG},
        {"prompt": "a", "stopping": pb.Stopping(stop=[LONG])},
        {"prompt": "a", "stopping": pb.Stopping(stop=["x"] * 100_000)},
        {"prompt": "a", "stopping": pb.Stopping(stop_token_ids=range(2**31, 2**31 + 100_000))},
        {"chat": pb.Chat(messages=[pb.ChatMessage(role=LONG, content="a")])},
        {"chat": pb.Chat(messages=[pb.ChatMessage(role="user", content=LONG)])},
    ],
    ids=["prompt", "model", "id", "stop", "stops", "stop ids", "role", "content"],
)
async def test_an_error_repeats_little_of_what_was_wrong(
    fields: dict[str, Any], stubs: Stubs
) -> None:
    """A message of the caller's own size would be more metadata than a client takes."""
    error = await error_of(stubs.generation.Generate(pb.GenerateRequest(**fields)))
    assert error.code() in (INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND)
    assert 10 < len(str(error.details())) < 400
    assert "/" not in str(error.details())  # of no file
