"""What is computed of a prompt: reused beginnings, and the log-probabilities of its tokens."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace

import pytest
import torch

from server.errors import NonFinite
from server.request import (
    Beam,
    Chunk,
    Finished,
    FinishReason,
    GenerationRequest,
    Output,
    Stopping,
    Summary,
)
from server.trace import Did
from tests.artefacts import decoder_artefact
from tests.server.engines import Decoding, Fault, decoding, request
from tests.server.llama import CAPACITY, llama_artefact, llama_model


def ids(length: int, start: int = 10) -> list[int]:
    return [start + (i * 7) % 200 for i in range(length)]


async def summary(decoder: Decoding, wanted: GenerationRequest) -> Summary:
    end = await decoder.submit(wanted).end()
    assert isinstance(end, Summary), end
    return end


def scored(prompt: list[int], tokens: int = 4, top: int = 0) -> GenerationRequest:
    output = Output(top_logprobs=top, prompt_logprobs=True)
    return replace(request(prompt, tokens), output=output)


async def test_a_beginning_that_is_known_is_not_computed_again() -> None:
    async with decoding(decoder_artefact(), cached_chunks=8) as decoder:
        first = await summary(decoder, request(ids(60), 4))
        computed = len(decoder.trace.of(Did.PREFILL))
        again = await summary(decoder, request(ids(60), 4, n=2))
        other = await summary(decoder, request([*ids(33), 9], 4))
        assert [each.cached_tokens for each in (first, again, other)] == [0, 48, 32]
        assert [each.prompt_tokens for each in (first, again, other)] == [60, 60, 34]
        spans = [event.span for event in decoder.trace.of(Did.PREFILL)[computed:]]
        assert spans == [(48, 60), (32, 34)]
        assert [event.span for event in decoder.trace.of(Did.REUSE)] == [(0, 48), (0, 32)]
        assert decoder.metric("tokens_total", kind="prompt") == 60 + 60 + 34
        assert decoder.metric("prefix_cache_reused_tokens_total") == 80
        await decoder.quiet()


async def test_others_of_another_partition_learn_nothing_from_the_time_it_takes() -> None:
    async with decoding(decoder_artefact(), cached_chunks=9) as decoder:
        for partition, reused in (("one", 0), ("two", 0), ("", 0), ("one", 48)):
            wanted = replace(request(ids(60), 2), partition=partition)
            assert (await summary(decoder, wanted)).cached_tokens == reused


async def test_a_storm_of_overlapping_prompts_changes_nobodys_tokens() -> None:
    """Streams, searches and several completions; few places, so that chunks come and go."""
    draw = random.Random(8)
    trunk = ids(100)

    def wanted() -> GenerationRequest:
        prompt = [*trunk[: draw.randrange(90)], *(draw.randrange(5, 250) for _ in range(9))]
        seed = draw.choice([None, draw.randrange(99)])
        each = request(prompt, draw.randint(1, 12), seed=seed, n=draw.choice([1, 1, 2]))
        return replace(each, beam=Beam(3)) if seed is None and draw.random() < 0.4 else each

    async def tokens(decoder: Decoding, each: GenerationRequest) -> list[list[int]]:
        mailbox = decoder.submit(each)
        assert isinstance(await mailbox.end(), Summary)
        return [mailbox.tokens(index) for index in range(each.n)]

    storm = [wanted() for _ in range(40)]
    async with decoding(decoder_artefact()) as without:
        expected = [await tokens(without, each) for each in storm]
        assert without.metric("prefix_cache_lookups_total") == 0
    async with decoding(decoder_artefact(), slots=6, cached_chunks=7) as decoder:
        assert await asyncio.gather(*(tokens(decoder, each) for each in storm)) == expected
        assert decoder.metric("prefix_cache_hits_total") > 10
        assert decoder.metric("prefix_cache_bytes") > 0
        await decoder.quiet()


@pytest.mark.parametrize("length", [2, 15, 16, 17, 40, 48])
async def test_the_log_probabilities_of_a_prompt_are_those_of_transformers(length: int) -> None:
    prompt = ids(length)
    with torch.no_grad():
        logits = llama_model()(torch.tensor([prompt])).logits[0]
    expected = torch.log_softmax(logits, dim=-1)
    async with decoding(llama_artefact(), capacity=CAPACITY) as decoder:
        found = (await summary(decoder, scored(prompt, top=3))).prompt_logprobs
        assert [each.token_id for each in found] == prompt[1:]
        for position, each in enumerate(found):
            row = expected[position]
            assert each.logprob == pytest.approx(float(row[each.token_id]), abs=1e-4)
            best = torch.topk(row, 3)
            assert [token for token, _ in each.top] == best.indices.tolist()
            assert [logprob for _, logprob in each.top] == pytest.approx(
                best.values.tolist(), abs=1e-4
            )


async def test_scoring_a_prompt_neither_reads_the_cache_nor_changes_the_tokens() -> None:
    async with decoding(decoder_artefact(), cached_chunks=8) as decoder:
        for length in (1, 16, 33, 64):
            plain = await decoder.tokens(request(ids(length), 12, seed=5))
            wanted = replace(request(ids(length), 12, seed=5), output=Output(prompt_logprobs=True))
            mailbox = decoder.submit(wanted)
            end = await mailbox.end()
            assert isinstance(end, Summary)
            assert end.cached_tokens == 0
            assert len(end.prompt_logprobs) == length - 1
            assert mailbox.tokens() == plain
        assert decoder.metric("prefix_cache_lookups_total") == 2, "plain prompts beyond a chunk"


async def test_a_prompt_is_scored_without_a_new_token() -> None:
    async with decoding(decoder_artefact(), slots=2) as decoder:
        neighbour = decoder.submit(request(ids(5), 30))
        wanted = scored(ids(40), 0)
        for each in (wanted, replace(wanted, n=2), replace(wanted, beam=Beam(2), n=2)):
            mailbox = decoder.submit(each)
            end = await mailbox.end()
            assert isinstance(end, Summary)
            assert len(end.prompt_logprobs) == 39
            assert end.completion_tokens == 0
            assert mailbox.events[:-1] == [
                Finished(index, FinishReason.LENGTH) for index in range(each.n)
            ]
        assert isinstance(await neighbour.end(), Summary)
        assert decoder.metric("tokens_total", kind="generated") == 30
        await decoder.quiet()


async def test_a_prompt_whose_scores_are_not_finite_fails_alone() -> None:
    fault = Fault()
    async with decoding(decoder_artefact(), wrap=fault) as decoder:
        alone = await decoder.tokens(request(ids(5), 20))
        fault.runner.spoil = (3,)
        stream = decoder.submit(request(ids(5), 20))
        culprit = decoder.submit(scored([8, 3, 8, 9]))
        assert isinstance(await culprit.error(), NonFinite)
        assert isinstance(await stream.end(), Summary)
        assert stream.tokens() == alone
        assert decoder.metric("nonfinite_outputs_total") == 1
        await decoder.quiet()


async def test_log_probabilities_of_a_completion_are_those_of_it_as_a_prompt() -> None:
    """Whatever rules its tokens were chosen by."""
    async with decoding(decoder_artefact()) as decoder:
        plain = request(ids(20), 30, seed=3)
        rules = replace(plain.sampling, temperature=1.7, top_k=9, repetition_penalty=1.3)
        wanted = replace(
            plain, sampling=rules, stopping=Stopping(30), output=Output(True, top_logprobs=2)
        )
        mailbox = decoder.submit(wanted)
        assert isinstance(await mailbox.end(), Summary)
        written = [
            each for event in mailbox.events if isinstance(event, Chunk) for each in event.logprobs
        ]
        prompt = [*ids(20), *mailbox.tokens()]
        read = (await summary(decoder, scored(prompt, 0, top=2))).prompt_logprobs[19:]
        assert [each.token_id for each in read] == [each.token_id for each in written]
        for one, other in zip(read, written, strict=True):
            assert one.logprob == pytest.approx(other.logprob, abs=1e-4)
            assert [token for token, _ in one.top] == [token for token, _ in other.top]
