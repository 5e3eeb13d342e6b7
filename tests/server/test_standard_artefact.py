"""A decoder in standard ONNX operators is served like any other."""

from __future__ import annotations

from server.request import Summary
from server.trace import Did
from tests.artefacts import decoder_artefact, standard_decoder_artefact
from tests.server.engines import decoding, request

_WANTED = [
    request([10 + (i * 7) % 200 for i in range(length)], 40, seed=seed)
    for length, seed in ((5, None), (150, None), (1, None), (70, 3))
]


async def test_the_tokens_are_those_of_the_usual_operators_alone_and_batched() -> None:
    async with decoding(decoder_artefact(), slots=4, capacity=256, prefill_chunk=64) as usual:
        expected = [await usual.tokens(each) for each in _WANTED]
    artefact = standard_decoder_artefact()
    async with decoding(artefact, slots=4, capacity=256, prefill_chunk=64) as standard:
        assert [await standard.tokens(each) for each in _WANTED] == expected
        mailboxes = [standard.submit(each) for each in _WANTED]
        assert all([isinstance(await mailbox.end(), Summary) for mailbox in mailboxes])
        assert [mailbox.tokens() for mailbox in mailboxes] == expected
        assert max(len(event.tickets) for event in standard.trace.of(Did.DECODE)) == 4
