"""The engine of an encoder-decoder on a tiny artefact: what a request gets is its own, and right.

"Right" is what the oracle in eager PyTorch generates; "alone" is the same request on the same
engine with no other traffic, compared with its log-probabilities, bit for bit.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from itertools import permutations
from pathlib import Path

import pytest
import torch

from model.beam_search import search_beams
from model.config import TransformerConfig
from model.generate import Source, generate_greedy, logits, remember
from model.transformer import Transformer
from server.request import Beam, Chunk, GenerationRequest, Output, Summary
from server.trace import Did
from tests.artefacts import encoder_decoder_artefact, relative_artefact
from tests.checkpoints import (
    ENCODER_DECODER,
    END_ID,
    RELATIVE_ENCODER_DECODER,
    tiny_checkpoint,
)
from tests.server.engines import Decoding, Mailbox
from tests.server.source_engines import START, translating, translation

LOGPROBS = Output(logprobs=True, top_logprobs=2)
LENGTHS = (3, 60, 120, 240)


def source(length: int, start: int = 10) -> list[int]:
    return [start + (i * 7) % 200 for i in range(length)]


@cache
def oracle(config: TransformerConfig = ENCODER_DECODER) -> Transformer:
    return tiny_checkpoint(config).build()


def remembered(ids: Sequence[int], config: TransformerConfig = ENCODER_DECODER) -> Source:
    return remember(oracle(config), torch.tensor([ids]), torch.tensor([len(ids)]))


async def completions(mailbox: Mailbox) -> list[Chunk]:
    """All chunks of a request that succeeds, completion by completion."""
    end = await mailbox.end()
    assert isinstance(end, Summary), end
    chunks = [event for event in mailbox.events if isinstance(event, Chunk)]
    return sorted(chunks, key=lambda chunk: chunk.index)


async def each_alone(engine: Decoding, wanted: Sequence[GenerationRequest]) -> list[list[Chunk]]:
    return [await completions(engine.submit(each)) for each in wanted]


@pytest.mark.parametrize("prefix", [[], [40, 41]])
@pytest.mark.parametrize(
    ("build", "config"),
    [
        (encoder_decoder_artefact, ENCODER_DECODER),
        (relative_artefact, RELATIVE_ENCODER_DECODER),
    ],
)
async def test_greedy_targets_are_those_of_the_oracle(
    build: Callable[[], Path], config: TransformerConfig, prefix: list[int]
) -> None:
    async with translating(build()) as engine:
        mailboxes = [engine.submit(translation(source(n), 30, prefix=prefix)) for n in LENGTHS]
        for length, mailbox in zip(LENGTHS, mailboxes, strict=True):
            await completions(mailbox)
            memory = remembered(source(length), config)
            expected = generate_greedy(oracle(config), [START, *prefix], 30, source=memory)
            assert mailbox.tokens() == expected
        assert max(len(event.tickets) for event in engine.trace.of(Did.DECODE)) == 4


@pytest.mark.parametrize("length_penalty", [0.5, 1.0, 2.0])
async def test_beams_are_those_of_the_oracle_whoever_shares_the_batch(
    length_penalty: float,
) -> None:
    """PAD-06: a source of 3 tokens first, in the middle and last."""
    ends = (END_ID, *range(20, 50))
    wanted = {
        length: translation(
            source(length), 12, n=4, beam=Beam(4, length_penalty), output=LOGPROBS, eos_ids=ends
        )
        for length in LENGTHS
    }
    async with translating(encoder_decoder_artefact(), slots=17, prefill_chunk=1024) as engine:
        alone = {length: await completions(engine.submit(each)) for length, each in wanted.items()}
        for length, found in alone.items():
            expected = search_beams(
                oracle(),
                [START],
                12,
                width=4,
                length_penalty=length_penalty,
                eos_ids=ends,
                source=remembered(source(length)),
            )
            assert [chunk.token_ids for chunk in found] == [beam.tokens for beam in expected]
        for order in ((3, 60, 120, 240), (60, 3, 240, 120), (240, 120, 60, 3)):
            mailboxes = await engine.together(*(wanted[length] for length in order))
            for length, mailbox in zip(order, mailboxes, strict=True):
                assert await completions(mailbox) == alone[length]
        assert [len(event.tickets) for event in engine.trace.of(Did.ENCODE)][4:] == [1, 4] * 3
        assert max(len(event.tickets) for event in engine.trace.of(Did.DECODE)) >= 16
        await engine.quiet()


async def test_targets_are_bitwise_the_same_in_every_order_of_arrival() -> None:
    """GEN-01: more requests than rows, ends in the middle, rows that move with their sources."""
    wanted = [
        translation(source(240), 2, output=LOGPROBS),
        translation(source(3), 12, output=LOGPROBS),
        translation(source(20, 50), 9, seed=4, output=LOGPROBS, prefix=[40]),
        translation(source(1), 15, output=LOGPROBS),
    ]
    async with translating(encoder_decoder_artefact(), slots=3) as engine:
        alone = await each_alone(engine, wanted)
        for order in permutations(range(4)):
            mailboxes = [engine.submit(wanted[index]) for index in order]
            for index, mailbox in zip(order, mailboxes, strict=True):
                assert await completions(mailbox) == alone[index]
        assert max(len(event.tickets) for event in engine.trace.of(Did.DECODE)) == 3
        await engine.quiet()


@pytest.mark.parametrize("place", [0, 3])
async def test_who_leaves_and_who_joins_changes_nobodys_target(place: int) -> None:
    """GEN-01: the request that is cancelled has the first row, or the last."""
    leaving = translation(source(240), 60, output=LOGPROBS)
    staying = [translation(source(length), 60, output=LOGPROBS) for length in (5, 20, 1)]
    joining = translation(source(17, 50), 60, output=LOGPROBS)
    async with translating(encoder_decoder_artefact(), slots=4, prefill_chunk=1024) as engine:
        alone = await each_alone(engine, [*staying, joining])
        order = [*staying[:place], leaving, *staying[place:]]
        engine.runner.pause()
        mailboxes = [engine.submit(each) for each in order]
        assert await asyncio.to_thread(engine.runner.paused.wait, 30)
        engine.runner.resume.set()
        await engine.hold()
        newcomer = engine.submit(joining)
        left = mailboxes.pop(place)
        engine.cancel(left)
        engine.runner.resume.set()
        for mailbox, expected in zip([*mailboxes, newcomer], alone, strict=True):
            assert await completions(mailbox) == expected
        assert 0 < len(left.tokens()) < 60
        joined = {engine.tickets[each] for each in [*mailboxes, newcomer]}
        assert joined in [set(event.tickets) for event in engine.trace.of(Did.DECODE)]
        await engine.quiet()


async def test_a_seed_gives_the_same_target_whatever_else_runs() -> None:
    """SMP-01: alone, beside others, beside itself, and after a restart."""
    draw = random.Random()  # who gives no seed is given one by chance
    found, others = [], []
    for _ in range(2):
        async with translating(encoder_decoder_artefact(), slots=11) as engine:
            found += await each_alone(engine, [warm(42)] * 3)
            neighbours = (warm(draw.getrandbits(63)) for _ in range(10))
            mailbox, *unseeded = await engine.together(warm(42), *neighbours)
            found.append(await completions(mailbox))
            others += [await completions(each) for each in unseeded]
            copies = await engine.together(*[warm(42)] * 8)
            found += [await completions(each) for each in copies]
            assert max(len(event.tickets) for event in engine.trace.of(Did.DECODE)) == 11
    assert found == [found[0]] * len(found)
    assert len({str(each) for each in [found[0], *others]}) == 21


def warm(seed: int) -> GenerationRequest:
    """A request at temperature 0.8."""
    request = translation(source(30), 20, seed=seed, output=LOGPROBS)
    return replace(request, sampling=replace(request.sampling, temperature=0.8))


async def test_scores_of_a_beginning_are_those_of_the_oracle() -> None:
    prefix = [40, 41, 42, 43, 44]
    output = Output(prompt_logprobs=True, top_logprobs=3)
    async with translating(encoder_decoder_artefact()) as engine:
        mailbox = engine.submit(translation(source(60), 0, prefix=prefix, output=output))
        end = await mailbox.end()
        assert isinstance(end, Summary)
        following, _ = logits(
            oracle(), torch.tensor([[START, *prefix]]), source=remembered(source(60))
        )
        expected = following[0].log_softmax(dim=-1)
        assert [each.token_id for each in end.prompt_logprobs] == prefix
        for position, each in enumerate(end.prompt_logprobs):
            wanted = float(expected[position, each.token_id])
            assert each.logprob == pytest.approx(wanted, abs=1e-4)
            best = expected[position].topk(3).indices.tolist()
            assert [token for token, _ in each.top] == best


async def test_a_storm_with_a_cache_of_sources_equals_each_alone_without() -> None:
    """Streams, searches and completions of few sources; a small cache; some are cancelled."""
    draw = random.Random(11)

    def wanted() -> GenerationRequest:
        ids = source(draw.choice([1, 2, 5, 40, 41, 100]), start=draw.choice([10, 11]))
        n = draw.choice([1, 1, 2])
        beam = Beam(3) if draw.random() < 0.3 else None
        seed = None if beam else draw.choice([None, draw.randrange(99)])
        return translation(ids, draw.randint(1, 12), seed=seed, n=n, beam=beam, output=LOGPROBS)

    storm = [wanted() for _ in range(40)]
    async with translating(encoder_decoder_artefact()) as without:
        expected = await each_alone(without, storm)
        assert without.metric("prefix_cache_lookups_total") == 0
    async with translating(encoder_decoder_artefact(), slots=6, source_places=30) as engine:
        mailboxes = [engine.submit(each) for each in storm]
        victims = draw.sample(mailboxes, 8)
        for victim in victims:
            await asyncio.sleep(draw.random() * 0.01)
            engine.cancel(victim)
        for mailbox, alone in zip(mailboxes, expected, strict=True):
            if mailbox not in victims:
                assert await completions(mailbox) == alone
        assert engine.metric("prefix_cache_hits_total") > 4
        assert engine.metric("prefix_cache_bytes") > 0
        await engine.quiet()
