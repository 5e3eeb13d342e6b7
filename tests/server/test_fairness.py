"""SCH-04: prompts and streams share every iteration, and a newcomer waits for nobody's end.

Order is read from the engine's trace, in steps.
"""

from __future__ import annotations

from collections.abc import Sequence

from server.request import Summary
from server.trace import Did
from tests.artefacts import learned_decoder_artefact
from tests.server.engines import Mailbox, decoding, request
from tests.server.turns import chunks_between_steps

CHUNK = 16


def ids(length: int, start: int = 10) -> list[int]:
    return [start + (i * 7) % 200 for i in range(length)]


async def succeed(mailboxes: Sequence[Mailbox]) -> None:
    for mailbox in mailboxes:
        assert isinstance(await mailbox.end(), Summary)


async def test_a_stream_goes_on_while_long_prompts_come_one_after_the_other() -> None:
    async with decoding(
        learned_decoder_artefact(), slots=6, capacity=1024, prefill_chunk=CHUNK
    ) as decoder:
        wanted = request(ids(3), 120, seed=5, n=2)
        alone = decoder.submit(wanted)
        await succeed([alone])
        stream = decoder.submit(wanted)
        prompts = [decoder.submit(request(ids(900, start), 2)) for start in range(10, 13)]
        await succeed([stream, *prompts])
        assert [stream.tokens(i) for i in (0, 1)] == [alone.tokens(i) for i in (0, 1)]
        between = chunks_between_steps(decoder.trace.events, decoder.tickets[stream])
        assert max(between) == 1
        # Neither starves the other: from the first prompt on, a chunk comes with every step.
        assert len(between) == 118
        assert 0 not in between[between.index(1) :]


async def test_a_newcomer_waits_for_no_completion() -> None:
    """32 of 40 slots run long streams; what comes then begins with the next step."""
    async with decoding(
        learned_decoder_artefact(), slots=40, capacity=1024, prefill_chunk=CHUNK
    ) as decoder:
        streams = [decoder.submit(request(ids(4, start), 500)) for start in range(10, 42)]
        for stream in streams:
            await stream.tokens_there(2)
        newcomer = decoder.submit(request(ids(3 * CHUNK + 1), 5))
        await succeed([newcomer])
        for stream in streams:
            decoder.cancel(stream)
        await decoder.quiet()
        events, ticket = decoder.trace.events, decoder.tickets[newcomer]
        steps = {
            did: [e.step for e in events if e.did is did and ticket in e.tickets] for did in Did
        }
        assert decoder.trace.of(Did.SUCCEED)[0].tickets == (ticket,)
        [accepted] = steps[Did.ACCEPT]
        # A chunk a step, from the step that accepted it; its first token comes with the last one.
        assert steps[Did.PREFILL] == list(range(accepted, accepted + 4))
        assert steps[Did.DECODE] == list(range(accepted + 3, accepted + 7))
        rows = [len(e.tickets) for e in events if e.did is Did.DECODE and ticket in e.tickets]
        assert rows == [33] * 4


async def test_a_request_that_needs_many_rows_is_overtaken_by_nobody() -> None:
    """First come, first served, also where a later one would fit at once."""
    async with decoding(learned_decoder_artefact(), slots=4, prefill_chunk=CHUNK) as decoder:
        running = decoder.submit(request(ids(5), 60))
        await running.tokens_there(1)
        wide = decoder.submit(request(ids(5), 4, n=4))
        small = [decoder.submit(request(ids(5), 4)) for _ in range(6)]
        await succeed([running, wide, *small])
        prefilled = [event.tickets[0] for event in decoder.trace.of(Did.PREFILL)]
        assert prefilled == [decoder.tickets[each] for each in (running, wide, *small)]
        finished = decoder.trace.of(Did.SUCCEED)[0]
        [first] = finished.tickets
        assert first is decoder.tickets[running]
        await decoder.quiet()
