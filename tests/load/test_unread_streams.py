"""STR-04: streams that nobody reads cost bounded memory and nobody's time."""

from __future__ import annotations

import asyncio

import grpc

from tests.artefacts import decoder_artefact
from tests.contract.stubs import Stubs, generate_request
from tests.contract.waiting import measured
from tests.e2e.server_process import running_server
from tests.load.scenarios.unread_streams import unread, unread_streams

SLOTS = 4
FLAGS = ("--slots", str(SLOTS), "--threads", "1")


async def test_fifty_unread_streams_hold_no_slot_and_nobody_up() -> None:
    with running_server([decoder_artefact()], *FLAGS) as server:
        await unread_streams(server, SLOTS)


async def test_the_longest_time_of_a_request_ends_a_stream_that_is_not_read() -> None:
    """Nobody leaves: it is the server that ends them, also while their status is not read."""
    with running_server([decoder_artefact()], *FLAGS, "--max-request-seconds", "5") as server:
        async with unread(server.target, 2 * SLOTS):
            name = "formerd_requests_started_total"
            await measured(server, lambda now: now.total(name) == 2 * SLOTS)
            snapshot = await asyncio.to_thread(server.wait_until_quiet, 60)
            late = snapshot.total("formerd_requests_total", {"code": "DEADLINE_EXCEEDED"})
            assert late == 2 * SLOTS
            async with grpc.aio.insecure_channel(server.target) as channel:
                answer = await Stubs(channel).generation.Generate(generate_request("x", tokens=2))
                assert answer.usage.completion_tokens == 2
