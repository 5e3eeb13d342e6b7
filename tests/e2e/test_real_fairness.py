"""SCH-04 on SmolLM2: a stream goes on while long prompts keep coming, and nobody waits for an end.

Order is read from the engine's trace, in steps.
"""

from __future__ import annotations

import asyncio

import pytest
from tokenizers import Tokenizer

from export.manifest import TOKENIZER_FILE
from server.request import Summary
from server.trace import Did
from tests.e2e.real_artefacts import RealArtefacts, on_real_checkpoints
from tests.e2e.real_texts import real_ids
from tests.server.engines import Decoding, Mailbox, decoding, request
from tests.server.turns import chunks_between_steps

pytestmark = [*on_real_checkpoints, pytest.mark.full]

_CHUNK = 64
_STREAM_TOKENS = 200
_LONG_PROMPT = 1500
_EVERY_SECONDS = 0.2


@pytest.fixture(scope="module")
def tokenizer(real_artefacts: RealArtefacts) -> Tokenizer:
    return Tokenizer.from_file(str(real_artefacts.smollm2 / TOKENIZER_FILE))


async def test_a_stream_goes_on_while_long_prompts_keep_coming(
    real_artefacts: RealArtefacts, tokenizer: Tokenizer
) -> None:
    short, long = real_ids(tokenizer, [20, _LONG_PROMPT])
    async with decoding(
        real_artefacts.smollm2,
        capacity=2048,
        prefill_chunk=_CHUNK,
        max_queue=1000,
        max_queue_tokens=1000 * _LONG_PROMPT,
        max_request_seconds=600,
    ) as decoder:
        alone = await decoder.tokens(request(short, _STREAM_TOKENS, seed=1))
        stream = decoder.submit(request(short, _STREAM_TOKENS, seed=1))
        prompts = await keep_submitting(decoder, long, until=stream)
        assert isinstance(await stream.end(), Summary)
        assert stream.tokens() == alone
        for prompt in prompts:
            if not prompt.ended.is_set():
                decoder.cancel(prompt)
        await decoder.quiet()
        between = chunks_between_steps(decoder.trace.events, decoder.tickets[stream])
        assert len(between) == _STREAM_TOKENS - 2
        assert max(between) == 1
        # Neither starves the other: from the first prompt on, a chunk comes with every step.
        assert 0 not in between[between.index(1) :]
        assert sum(between) > _LONG_PROMPT / _CHUNK, "more than one prompt was computed"


async def keep_submitting(decoder: Decoding, prompt: list[int], until: Mailbox) -> list[Mailbox]:
    """Long prompts, one after the other, until a request has ended."""
    submitted = []
    while not until.ended.is_set():
        submitted.append(decoder.submit(request(prompt, 2)))
        await asyncio.sleep(_EVERY_SECONDS)
    return submitted


async def test_a_newcomer_beside_many_streams_waits_for_none_of_them(
    real_artefacts: RealArtefacts, tokenizer: Tokenizer
) -> None:
    *prompts, newcomer = real_ids(tokenizer, [*[5] * 32, 3 * _CHUNK + 1])
    async with decoding(
        real_artefacts.smollm2,
        slots=40,
        capacity=512,
        prefill_chunk=_CHUNK,
        max_request_seconds=600,
    ) as decoder:
        streams = [decoder.submit(request(prompt, 500)) for prompt in prompts]
        for stream in streams:
            await stream.tokens_there(2)
        late = decoder.submit(request(newcomer, 3))
        assert isinstance(await late.end(), Summary)
        for stream in streams:
            decoder.cancel(stream)
        await decoder.quiet()
        events, ticket = decoder.trace.events, decoder.tickets[late]
        assert decoder.trace.of(Did.SUCCEED)[0].tickets == (ticket,)
        [accepted] = [e.step for e in events if e.did is Did.ACCEPT and ticket in e.tickets]
        prefills = [e.step for e in events if e.did is Did.PREFILL and ticket in e.tickets]
        assert prefills == list(range(accepted, accepted + 4))
