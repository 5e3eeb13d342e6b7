"""One server with the tiny models for all contract tests, and channels to it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import grpc
import pytest

from tests.artefacts import decoder_artefact, encoder_artefact
from tests.contract.stubs import Stubs
from tests.e2e.server_process import ServerProcess, running_server

SLOTS = 4


@pytest.fixture(scope="session")
def server() -> Iterator[ServerProcess]:
    """Serves `tiny-encoder` and `tiny-decoder`; what it counts goes on from test to test."""
    flags = ("--slots", str(SLOTS), "--max-wait-ms", "20", "--threads", "1")
    with running_server([encoder_artefact(), decoder_artefact()], *flags) as server:
        yield server


@pytest.fixture
async def stubs(server: ServerProcess) -> AsyncIterator[Stubs]:
    """Stubs of every service on one channel; afterwards nothing may be left running."""
    async with grpc.aio.insecure_channel(server.target) as channel:
        yield Stubs(channel)
    server.wait_until_quiet()
