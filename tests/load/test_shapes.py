"""MEM-01: the variety of shapes costs no memory."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.artefacts import decoder_artefact, encoder_artefact
from tests.e2e.server_process import ServerProcess, running_server
from tests.load.scenarios.shapes import embed_shapes, generate_shapes


@pytest.fixture
def server() -> Iterator[ServerProcess]:
    # The prefix cache is meant to fill up.
    flags = ("--threads", "1", "--prefix-cache-bytes", "0")
    with running_server([encoder_artefact(), decoder_artefact()], *flags) as server:
        yield server


@pytest.mark.parametrize("calls", [2_000, pytest.param(20_000, marks=pytest.mark.full)])
async def test_texts_of_every_shape(calls: int, server: ServerProcess) -> None:
    await embed_shapes(server, "tiny-encoder", calls=calls)


async def test_prompts_of_every_length(server: ServerProcess) -> None:
    await generate_shapes(server, "tiny-decoder", calls=200)
