"""The engine of an encoder-decoder on a script: rows, batches, failures and ends.

The scripted model says something else for every source and every target, so that a row that holds
another's source or tokens shows at once; what is right is computed without an engine.
"""

from __future__ import annotations

import asyncio
import random
import time
from itertools import chain, pairwise, permutations

import pytest

from server.errors import (
    DeadlinePassed,
    Draining,
    InputTooLong,
    Interrupted,
    InvalidInput,
    NonFinite,
    QueueTokensFull,
    ServerError,
    StepFailed,
)
from server.logprobs import log_softmax
from server.request import Beam, Finished, FinishReason, Output, Summary
from server.trace import Did
from tests.server.engines import Mailbox
from tests.server.source_engines import START, Scripted, said, scripted, spoken, translation

SOURCES = [[7], [20, 21, 22], list(range(30, 39)), list(range(40, 60))]
SCORED = Output(prompt_logprobs=True)


async def summary(mailbox: Mailbox) -> Summary:
    end = await mailbox.end()
    assert isinstance(end, Summary), end
    return end


async def together(engine: Scripted, *sources: list[int], tokens: int = 10) -> list[Mailbox]:
    """Submits translations that meet in the queue."""
    return await engine.together(*(translation(source, tokens) for source in sources))


@pytest.mark.parametrize("order", list(permutations(range(4))))
async def test_every_target_is_that_of_its_source_in_every_order_of_arrival(
    order: tuple[int, ...],
) -> None:
    """GEN-01, PAD-05: rows of all lengths, more than there are slots, ends in the middle."""
    async with scripted(slots=3) as engine:
        wanted = [(SOURCES[index], 4 + 3 * index) for index in order]
        mailboxes = [engine.submit(translation(source, count)) for source, count in wanted]
        for mailbox, (source, count) in zip(mailboxes, wanted, strict=True):
            assert (await summary(mailbox)).prompt_tokens == len(source)
            assert mailbox.tokens() == spoken(source, count)
        await engine.quiet()


async def test_sources_that_wait_together_are_encoded_together() -> None:
    async with scripted(slots=6) as engine:
        mailboxes = await together(engine, *SOURCES, [8], [9])
        for mailbox in mailboxes:
            await summary(mailbox)
        found = [[len(source) for source in batch] for batch in engine.runner.batches]
        assert found == [[1], [1, 3], [9], [20], [1, 1]], "16 tokens at most, or one source"
        shared = [len(event.tickets) for event in engine.trace.of(Did.ENCODE)]
        assert shared == [len(batch) for batch in found]
        assert engine.metric("engine_steps_total", phase="encode") == 5
        assert engine.metric("batch_sequences_sum", phase="encode") == 7
        assert engine.metric("batch_tokens_sum", phase="encode") == 36


async def test_at_most_one_batch_comes_between_two_tokens_of_a_running_row() -> None:
    """SCH-04."""
    async with scripted(slots=8) as engine:
        stream, *others = await together(engine, [5, 6], *SOURCES[3:] * 5, tokens=30)
        for mailbox in (stream, *others):
            await summary(mailbox)
        events = engine.trace.events
        ticket = engine.tickets[stream]
        steps = [n for n, e in enumerate(events) if e.did is Did.DECODE and ticket in e.tickets]
        between = [
            sum(event.did is Did.ENCODE for event in events[first:second])
            for first, second in pairwise(steps)
        ]
        assert max(between) == 1
        assert sum(between) >= 4


async def test_completions_and_beams_have_a_row_each_with_their_source() -> None:
    async with scripted(slots=5) as engine:
        alone = engine.submit(translation(SOURCES[1], 12, seed=3))
        await summary(alone)
        best = engine.submit(translation(SOURCES[2], 9, n=2, beam=Beam(4)))
        several = engine.submit(translation(SOURCES[1], 12, seed=3, n=3))
        last = engine.submit(translation(SOURCES[0], 9))
        for mailbox in (best, several, last):
            await summary(mailbox)
        assert several.tokens(0) == alone.tokens()
        assert several.tokens(1) != alone.tokens()
        assert last.tokens() == spoken(SOURCES[0], 9)
        assert [len(batch) for batch in engine.runner.batches] == [1, 1, 2], "the search goes first"
        await engine.quiet()


async def test_beams_copy_their_targets_only() -> None:
    async with scripted(slots=5) as engine:
        prefix = [11, 12]
        mailbox = engine.submit(translation(SOURCES[2], 12, prefix=prefix, n=1, beam=Beam(4)))
        await summary(mailbox)
        forks = engine.runner.moves
        assert forks
        assert all(fork.start == 1 + len(prefix) and not fork.memory for fork in forks)
        wider = engine.submit(translation(SOURCES[2], 12, prefix=prefix, n=1, beam=Beam(5)))
        await summary(wider)
        scores = [
            sum(
                float(log_softmax(said(SOURCES[2], target[:end]))[target[end]])
                for end in range(3, len(target))
            )
            for target in (
                [START, *prefix, *tokens]
                for tokens in (spoken(SOURCES[2], 12, prefix), mailbox.tokens(), wider.tokens())
            )
        ]
        assert scores[0] < scores[1], "a search finds what is more probable than the greedy target"


async def test_a_target_begins_with_what_the_caller_gives() -> None:
    async with scripted() as engine:
        stream = engine.submit(translation(SOURCES[0], 20))
        prefixed = engine.submit(translation(SOURCES[1], 7, prefix=[50, 51, 52]))
        end = await summary(prefixed)
        assert prefixed.tokens() == spoken(SOURCES[1], 7, [50, 51, 52])
        assert (end.prompt_tokens, end.completion_tokens) == (3 + 3, 7)
        await summary(stream)
        assert stream.tokens() == spoken(SOURCES[0], 20)


@pytest.mark.parametrize("prefix", [[], [50], [50, 51, 52]])
@pytest.mark.parametrize("tokens", [0, 5])
async def test_what_a_target_begins_with_is_scored(prefix: list[int], tokens: int) -> None:
    async with scripted() as engine:
        neighbour = engine.submit(translation(SOURCES[2], 20))
        scored = translation(SOURCES[1], tokens, prefix=prefix, n=2, output=SCORED)
        mailbox = engine.submit(scored)
        end = await summary(mailbox)
        target = [START, *prefix]
        assert [each.token_id for each in end.prompt_logprobs] == prefix
        for position, each in enumerate(end.prompt_logprobs):
            expected = log_softmax(said(SOURCES[1], target[: position + 1]))[each.token_id]
            assert each.logprob == pytest.approx(float(expected), abs=1e-5)
        for index in range(2):
            assert mailbox.tokens(index) == spoken(SOURCES[1], tokens, prefix)
        if tokens == 0:
            assert mailbox.finished() == [Finished(i, FinishReason.LENGTH) for i in range(2)]
        await summary(neighbour)
        assert neighbour.tokens() == spoken(SOURCES[2], 20)
        await engine.quiet()


async def test_the_end_of_the_slot_ends_a_target() -> None:
    async with scripted(capacity=12) as engine:
        mailbox = engine.submit(translation(SOURCES[1], 1000, prefix=[50]))
        await summary(mailbox)
        assert mailbox.tokens() == spoken(SOURCES[1], 10, [50])
        assert mailbox.finished()[0].reason is FinishReason.LENGTH


@pytest.mark.parametrize(
    ("source", "prefix", "error", "message"),
    [
        ([], [], InvalidInput, "prompt has no tokens"),
        ([5] * 33, [], InputTooLong, "prompt has 33 tokens; this model takes at most 32"),
        ([5], [6] * 63, InputTooLong, "decoder_prompt has 63 tokens; this model takes at most 62"),
    ],
)
async def test_what_can_never_run_is_refused_at_once(
    source: list[int], prefix: list[int], error: type[ServerError], message: str
) -> None:
    async with scripted() as engine:
        with pytest.raises(error, match=message):
            engine.submit(translation(source, prefix=prefix))
        longest = engine.submit(translation([5] * 32, prefix=[6] * 62))
        await summary(longest)
        assert longest.tokens() == spoken([5] * 32, 1, [6] * 62)


async def test_sources_that_wait_are_bounded() -> None:
    async with scripted(slots=1, max_queue_tokens=30) as engine:
        engine.runner.pause()
        running = engine.submit(translation([5], 2))
        await asyncio.to_thread(engine.runner.paused.wait, 30)
        waiting = engine.submit(translation([5] * 20, prefix=[6] * 5))
        with pytest.raises(QueueTokensFull):
            engine.submit(translation([5] * 6))
        engine.runner.resume.set()
        await summary(running)
        await summary(waiting)
        await engine.quiet()


async def test_a_source_that_fails_fails_alone() -> None:
    async with scripted(slots=6, prefill_chunk=32) as engine:
        engine.runner.poison = {99}
        sources = [[7], [8, 99], [9, 10], [99]]
        mailboxes = await together(engine, *sources)
        for source, mailbox in zip(sources, mailboxes, strict=True):
            if 99 in source:
                assert isinstance(await mailbox.error(), StepFailed)
            else:
                await summary(mailbox)
                assert mailbox.tokens() == spoken(source, 10)
        assert engine.engine.alive
        await engine.quiet()


async def test_a_source_that_cannot_be_kept_is_served_and_encoded_again() -> None:
    async with scripted(source_places=4) as engine:
        engine.runner.failing = {"keep_source"}
        for _ in range(2):
            assert await engine.tokens(translation(SOURCES[1])) == spoken(SOURCES[1], 8)
        assert len(engine.runner.batches) == 2
        assert engine.metric("prefix_cache_bytes") == engine.metric("prefix_cache_hits_total") == 0
        engine.runner.failing = ()
        for _ in range(2):
            assert await engine.tokens(translation(SOURCES[1])) == spoken(SOURCES[1], 8)
        assert len(engine.runner.batches) == 3
        assert engine.metric("prefix_cache_hits_total") == 1
        await engine.quiet()


async def test_a_kept_source_that_cannot_be_copied_is_encoded() -> None:
    async with scripted(slots=6, source_places=4, prefill_chunk=64) as engine:
        await engine.tokens(translation(SOURCES[1]))
        engine.runner.failing = {"restore_source"}
        for mailbox, source in zip(
            await together(engine, SOURCES[0], SOURCES[1], SOURCES[2]), SOURCES, strict=False
        ):
            assert (await summary(mailbox)).cached_tokens == 0
            assert mailbox.tokens() == spoken(source, 10)
        assert engine.runner.batches[-1] == [tuple(source) for source in SOURCES[:3]]
        assert engine.runner.copies["restore_source"] == 1
        assert engine.metric("prefix_cache_hits_total") == 0
        await engine.quiet()


async def test_sources_that_cannot_be_copied_to_their_rows_fail_and_the_engine_lives() -> None:
    async with scripted(slots=6, source_places=4) as engine:
        running = engine.submit(translation(SOURCES[2], 60))
        await running.tokens_there(1)
        engine.runner.failing = {"place"}
        victims = [engine.submit(translation(source, n=2)) for source in SOURCES[:2]]
        for victim in victims:
            assert isinstance(await victim.error(), StepFailed)
        engine.runner.failing = ()
        assert await engine.tokens(translation(SOURCES[1])) == spoken(SOURCES[1], 8)
        await summary(running)
        assert running.tokens() == spoken(SOURCES[2], 60)
        await engine.quiet()


async def test_an_engine_that_can_copy_nothing_dies() -> None:
    async with scripted() as engine:
        engine.runner.failing = {"place", "probe"}
        assert isinstance(await engine.submit(translation([5])).error(), StepFailed)
        assert not engine.engine.alive


async def test_a_row_that_fails_fails_alone() -> None:
    async with scripted(slots=4) as engine:
        others = [spoken(source, 15) for source in SOURCES[:3]]
        culprit = SOURCES[3]
        harmless = {START, *chain(*others, *SOURCES)}
        fatal = next(token for token in spoken(culprit, 15)[:-1] if token not in harmless)
        for error in (StepFailed, NonFinite):
            engine.runner.poison = {fatal} if error is StepFailed else ()
            engine.runner.spoil = {fatal} if error is NonFinite else ()
            mailboxes = await together(engine, *SOURCES[:3], culprit, tokens=15)
            assert isinstance(await mailboxes[3].error(), error)
            for mailbox, expected in zip(mailboxes[:3], others, strict=True):
                await summary(mailbox)
                assert mailbox.tokens() == expected
            await engine.quiet()
        assert engine.metric("nonfinite_outputs_total") == 1


async def test_a_beginning_whose_scores_are_not_finite_fails_alone() -> None:
    async with scripted() as engine:
        engine.runner.spoil = {98}
        good = engine.submit(translation(SOURCES[1], 10, prefix=[98, 50]))
        culprit = engine.submit(translation(SOURCES[2], 3, prefix=[98, 50], n=2, output=SCORED))
        assert isinstance(await culprit.error(), NonFinite)
        await summary(good)
        assert good.tokens() == spoken(SOURCES[1], 10, [98, 50]), "nobody asked for those numbers"
        await engine.quiet()


async def test_an_engine_that_fails_for_a_while_goes_on_and_one_that_cannot_run_dies() -> None:
    async with scripted(slots=2) as engine:
        engine.runner.blind = True
        assert isinstance(await engine.submit(translation([5])).error(), StepFailed)
        engine.runner.blind = False
        assert await engine.tokens(translation([5])) == spoken([5], 8)
        victims = [engine.submit(translation([5], 60)) for _ in range(4)]
        await victims[0].tokens_there(1)
        engine.runner.broken = True
        for victim in victims:
            assert isinstance(await victim.error(), StepFailed)
        assert not engine.engine.alive
        await engine.quiet()


async def test_cancelling_frees_rows_wherever_the_request_is() -> None:
    """CXL-01."""
    async with scripted(slots=3) as engine:
        search = engine.submit(translation(SOURCES[2], 60, n=1, beam=Beam(2)))
        running = engine.submit(translation(SOURCES[1], 60))
        queued = engine.submit(translation(SOURCES[3], 60))
        last = engine.submit(translation(SOURCES[0], 60))
        await running.tokens_there(1)
        engine.runner.pause()
        await asyncio.to_thread(engine.runner.paused.wait, 30)
        for victim in (running, search, queued):
            engine.cancel(victim)
        seen = len(running.events)
        engine.runner.resume.set()
        await summary(last)
        assert last.tokens() == spoken(SOURCES[0], 60)
        assert len(running.events) == seen
        assert search.events == queued.events == []
        stages = [engine.metric("requests_cancelled_total", stage=s) for s in ("running", "queued")]
        assert stages == [2, 1]
        await engine.quiet()


async def test_deadlines_hold_in_the_queue_and_while_running() -> None:
    async with scripted(slots=1) as engine:
        engine.runner.pause()
        soon = time.monotonic() + 0.3
        running = engine.submit(translation([5], 60, deadline=soon))
        queued = engine.submit(translation([6], 5, deadline=soon))
        patient = engine.submit(translation([7], 5))
        await asyncio.to_thread(engine.runner.paused.wait, 30)
        await asyncio.sleep(max(0.0, soon - time.monotonic()) + 0.01)
        engine.runner.resume.set()
        for mailbox in (running, queued):
            assert isinstance(await mailbox.error(), DeadlinePassed)
        await summary(patient)
        await engine.quiet()


async def test_draining_completes_and_stopping_interrupts() -> None:
    async with scripted(slots=1) as engine:
        accepted = [engine.submit(translation([5, index], 5)) for index in range(3)]
        engine.engine.drain()
        with pytest.raises(Draining):
            engine.submit(translation([5]))
        for mailbox in accepted:
            await summary(mailbox)
    async with scripted(slots=1) as engine:
        left = [engine.submit(translation([5], 60)) for _ in range(3)]
        await left[0].tokens_there(1)
        engine.runner.pause()
        stopping = asyncio.create_task(asyncio.to_thread(engine.engine.stop))
        await asyncio.sleep(0.01)
        engine.runner.resume.set()
        await stopping
        for mailbox in left:
            assert isinstance(await mailbox.error(), Interrupted)
        await engine.quiet()


async def test_counters_add_up() -> None:
    async with scripted(slots=2) as engine:
        for _ in range(3):
            mailbox = engine.submit(translation(SOURCES[2], 6, prefix=[50]))
            await summary(mailbox)
        assert engine.metric("tokens_total", kind="prompt") == 3 * (9 + 1)
        assert engine.metric("request_prompt_tokens_sum") == 3 * (9 + 1)
        assert engine.metric("tokens_total", kind="generated") == 18
        assert engine.metric("batch_tokens_sum", phase="encode") == 27
        assert engine.metric("batch_tokens_sum", phase="decode") == 3 * (1 + 6)
        assert engine.metric("time_to_first_token_seconds_count") == 3
        assert engine.metric("inter_token_latency_seconds_count") == 15
        assert engine.metric("cache_capacity_tokens") == 2 * (64 + 32)


@pytest.mark.parametrize("source_places", [0, 40])
async def test_a_storm_changes_nobodys_tokens(source_places: int) -> None:
    """Streams, completions, searches, prefixes, repeated sources, cancellations."""
    draw = random.Random(20)
    async with scripted(slots=6, source_places=source_places) as engine:
        wanted = []
        for _ in range(80):
            source = [draw.randint(5, 9) for _ in range(draw.choice([1, 2, 2, 3, 17]))]
            prefix = [draw.randint(5, 9) for _ in range(draw.choice([0, 0, 1, 3]))]
            wanted.append((source, prefix, draw.randint(1, 15), draw.choice([1, 1, 2, 4])))
        mailboxes = [
            engine.submit(
                translation(source, count, prefix=prefix, n=n, beam=Beam(n) if n == 4 else None)
            )
            for source, prefix, count, n in wanted
        ]
        cancelled = draw.sample(mailboxes, 15)
        for victim in cancelled:
            await asyncio.sleep(draw.random() * 0.004)
            engine.cancel(victim)
        for mailbox, (source, prefix, count, n) in zip(mailboxes, wanted, strict=True):
            expected = spoken(source, count, prefix)
            if mailbox in cancelled:
                if n < 4:
                    assert mailbox.tokens() == expected[: len(mailbox.tokens())]
                continue
            await summary(mailbox)
            for index in range(n if n < 4 else 0):
                assert mailbox.tokens(index) == expected
        hits = engine.metric("prefix_cache_hits_total")
        assert hits > 4 if source_places else hits == 0
        assert max(len(event.tickets) for event in engine.trace.of(Did.DECODE)) == 6
        await engine.quiet()
