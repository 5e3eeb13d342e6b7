"""Artefacts of few bits are served like any other, and nobody's answer depends on the others'."""

from __future__ import annotations

import numpy as np
import pytest

from export.manifest import Precision
from server.request import EmbedOutcome, Summary
from server.trace import Did
from tests.artefacts import quantised_decoder_artefact, quantised_encoder_artefact
from tests.server.engines import decoding, encoding, request, vector

PRECISIONS = (Precision.INT8, Precision.INT4)
WANTED = [
    request([10 + (i * 7) % 200 for i in range(length)], 40, seed=seed)
    for length, seed in ((5, None), (150, None), (1, None), (70, 3))
]


def ids(length: int, start: int = 10) -> list[int]:
    return [start + (i * 7) % 60 for i in range(length)]


@pytest.mark.parametrize("precision", PRECISIONS)
async def test_a_text_gets_the_same_vector_whoever_shares_its_batch(precision: Precision) -> None:
    """PAD-03."""
    artefact = quantised_encoder_artefact(precision)
    text = ids(8)
    async with encoding(artefact, max_batch_tokens=8192) as encoder:
        alone = vector(await encoder.embed(text))
        assert np.isclose(np.linalg.norm(alone), 1.0)
        for others in (
            [text] * 31,
            [ids(24, start=30)] * 31,
            [ids(length) for length in range(5, 16)],
        ):
            first, *_, last = await encoder.embed_together([text], *[[o] for o in others], [text])
            for outcome in (first, last):
                assert isinstance(outcome, EmbedOutcome)
                assert np.linalg.norm(vector(outcome) - alone) <= 1e-6


@pytest.mark.parametrize("precision", PRECISIONS)
async def test_tokens_are_the_same_alone_and_together(precision: Precision) -> None:
    artefact = quantised_decoder_artefact(precision)
    async with decoding(artefact, slots=4, capacity=256, prefill_chunk=64) as decoder:
        expected = [await decoder.tokens(each) for each in WANTED]
        mailboxes = [decoder.submit(each) for each in WANTED]
        assert all([isinstance(await mailbox.end(), Summary) for mailbox in mailboxes])
        assert [mailbox.tokens() for mailbox in mailboxes] == expected
        assert max(len(event.tickets) for event in decoder.trace.of(Did.DECODE)) == 4
