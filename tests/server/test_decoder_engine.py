"""The decoder engine on tiny artefacts: what a request gets depends on nothing but itself.

"Alone" is the same request on the same engine with no other traffic. Order is read from the trace,
in steps.
"""

from __future__ import annotations

import asyncio
import random
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from server.detokenizer import Detokenizer
from server.errors import (
    DeadlinePassed,
    Draining,
    InputTooLong,
    Interrupted,
    InvalidInput,
    NonFinite,
    QueueFull,
    QueueTokensFull,
    StepFailed,
)
from server.request import Beam, FinishReason, Summary
from server.trace import Did
from tests.artefacts import (
    decoder_artefact,
    learned_decoder_artefact,
    read_weight,
    reseal,
    scripted_artefact,
    write_weight,
)
from tests.checkpoints import END_ID
from tests.server.engines import Fault, Mailbox, decoding, request

SCRIPT = [20 + position % 90 for position in range(200)]


def ids(length: int, start: int = 10) -> list[int]:
    return [start + (i * 7) % 200 for i in range(length)]


async def succeed(*mailboxes: Mailbox) -> None:
    for mailbox in mailboxes:
        assert isinstance(await mailbox.end(), Summary)


@pytest.mark.parametrize("build", [decoder_artefact, learned_decoder_artefact])
async def test_requests_of_all_lengths_decoded_together_equal_each_alone(
    build: Callable[[], Path],
) -> None:
    """GEN-01: a long prompt that ends early, rows that move, one that leaves, one that joins."""
    wanted = [
        request(ids(300), 2),
        request(ids(5), 60),
        request(ids(20), 60),
        request(ids(1), 60),
        request(ids(17), 60),
        request(ids(40), 60, seed=7),
    ]
    async with decoding(build(), slots=5, capacity=384, prefill_chunk=64) as decoder:
        alone = [await decoder.tokens(each) for each in wanted]
        assert len({tuple(tokens) for tokens in alone}) == len(wanted)
        cancelled = decoder.submit(request(ids(300), 60))
        mailboxes = [decoder.submit(each) for each in wanted[:5]]
        await cancelled.tokens_there(2)
        decoder.cancel(cancelled)
        await mailboxes[0].end()
        mailboxes.append(decoder.submit(wanted[5]))
        await succeed(*mailboxes)
        assert [mailbox.tokens() for mailbox in mailboxes] == alone
        assert max(len(event.tickets) for event in decoder.trace.of(Did.DECODE)) == 5
        assert decoder.metric("batch_sequences_sum", phase="decode") > decoder.metric(
            "batch_sequences_count", phase="decode"
        )
        await decoder.quiet()


async def test_a_script_is_said_exactly_whoever_shares_the_batch(tmp_path: Path) -> None:
    """PAD-05: a wrong position would shift the script."""
    artefact = scripted_artefact(tmp_path / "scripted", SCRIPT)
    async with decoding(artefact, slots=3, capacity=192) as decoder:
        short = decoder.submit(request(ids(4), 60))
        long = decoder.submit(request(ids(60), 60))
        await short.tokens_there(10)
        joining = decoder.submit(request(ids(33), 60))
        await succeed(short, long, joining)
        assert short.tokens() == SCRIPT[3:63]
        assert long.tokens() == SCRIPT[59:119]
        assert joining.tokens() == SCRIPT[32:92]
        assert max(len(event.tickets) for event in decoder.trace.of(Did.DECODE)) == 3


async def test_events_tell_each_token_then_the_end_then_the_summary(tmp_path: Path) -> None:
    artefact = scripted_artefact(tmp_path / "scripted", SCRIPT[:20])
    async with decoding(artefact) as decoder:
        mailbox = decoder.submit(request(ids(10), 50, eos_ids=(END_ID,)))
        summary = await mailbox.end()
        assert isinstance(summary, Summary)
        assert mailbox.tokens() == [*SCRIPT[9:20], END_ID]
        assert len(mailbox.events) == 12 + 2, "a chunk for each token"
        [finished] = mailbox.finished()
        assert mailbox.events[-2] is finished
        assert finished.reason is FinishReason.EOS
        assert (summary.prompt_tokens, summary.completion_tokens) == (10, 12)
        assert 0 <= summary.queue_seconds < summary.time_to_first_token_seconds
        assert summary.prefill_seconds > 0
        assert summary.decode_seconds > 0


async def test_the_end_of_the_slot_ends_a_completion() -> None:
    async with decoding(decoder_artefact(), capacity=32) as decoder:
        mailbox = decoder.submit(request(ids(25), 1000))
        await succeed(mailbox)
        assert len(mailbox.tokens()) == 7
        assert mailbox.finished()[0].reason is FinishReason.LENGTH


async def test_completions_of_one_request_share_its_prefill() -> None:
    async with decoding(decoder_artefact(), slots=4) as decoder:
        alone = await decoder.tokens(request(ids(40), 12, seed=3))
        greedy = await decoder.tokens(request(ids(40), 12))
        prefills = len(decoder.trace.of(Did.PREFILL)) // 2
        neighbour = decoder.submit(request(ids(9), 30))
        several = decoder.submit(request(ids(40), 12, seed=3, n=3))
        same = decoder.submit(request(ids(40), 12, n=2))
        await succeed(several, same, neighbour)
        assert several.tokens(0) == alone
        assert several.tokens(1) != alone
        assert same.tokens(0) == same.tokens(1) == greedy
        assert sorted(event.index for event in several.finished()) == [0, 1, 2]
        assert len(decoder.trace.of(Did.PREFILL)) == 4 * prefills + 1
        await decoder.quiet()


async def test_at_most_one_chunk_comes_between_two_tokens_of_a_running_row() -> None:
    """SCH-04: a long prompt does not stall a stream, and a stream does not starve a prompt."""
    fault = Fault()
    async with decoding(decoder_artefact(), capacity=256, wrap=fault) as decoder:
        fault.runner.pause()
        stream = decoder.submit(request(ids(3), 60))
        prompts = [decoder.submit(request(ids(200), 2)) for _ in range(2)]
        fault.runner.resume.set()
        await succeed(stream, *prompts)
        ticket = decoder.tickets[stream]
        steps = [n for n, e in enumerate(decoder.trace.events) if ticket in e.tickets][2:-1]
        between = [
            sum(event.did is Did.PREFILL for event in decoder.trace.events[first:second])
            for first, second in pairwise(steps)
        ]
        assert max(between) == 1
        assert sum(between) == 2 * 13, "both prompts were prefilled while the stream ran"


async def test_cancelling_frees_the_slot_before_the_next_step() -> None:
    fault = Fault()
    async with decoding(decoder_artefact(), slots=2, wrap=fault) as decoder:
        victim = decoder.submit(request(ids(4), 100))
        other = decoder.submit(request(ids(5), 100))
        await victim.tokens_there(5)
        fault.runner.pause()
        await asyncio.to_thread(fault.runner.paused.wait, 30)
        decoder.cancel(victim)
        seen = len(victim.events)
        fault.runner.resume.set()
        await other.tokens_there(20)
        newcomer = decoder.submit(request(ids(6), 2))
        await succeed(newcomer, other)
        [cancelled] = decoder.trace.of(Did.CANCEL)
        ticket = decoder.tickets[victim]
        steps = [e.step for e in decoder.trace.of(Did.DECODE) if ticket in e.tickets]
        assert max(steps) < cancelled.step, "no row of it is computed after the step it fell into"
        assert len(victim.events) == seen, "nothing is delivered after cancel"
        assert decoder.metric("requests_cancelled_total", stage="running") == 1
        decoder.cancel(victim)
        await decoder.quiet()
        assert decoder.metric("requests_cancelled_total", stage="running") == 1


async def test_cancelling_while_queued_or_prefilling_leaves_no_trace() -> None:
    fault = Fault()
    async with decoding(decoder_artefact(), slots=1, wrap=fault) as decoder:
        alone = await decoder.tokens(request(ids(30), 10))
        running = decoder.submit(request(ids(5), 30))
        queued = [decoder.submit(request(ids(5), 30)) for _ in range(3)]
        await running.tokens_there(1)
        decoder.cancel(queued[1])
        decoder.cancel(queued[0])
        decoder.cancel(running)
        last = decoder.submit(request(ids(30), 10))
        await succeed(queued[2], last)
        assert last.tokens() == alone
        assert queued[0].events == queued[1].events == []
        assert decoder.metric("requests_cancelled_total", stage="queued") == 2
        await decoder.quiet()


async def test_what_can_never_run_is_refused_at_once_and_disturbs_nobody() -> None:
    async with decoding(decoder_artefact(), slots=2, capacity=64) as decoder:
        with pytest.raises(InputTooLong, match="64 tokens; this model takes at most 63"):
            decoder.submit(request(ids(64)))
        with pytest.raises(InvalidInput, match=r"n, or beam\.width, is 3"):
            decoder.submit(request(ids(4), n=3))
        assert len(await decoder.tokens(request(ids(63), 9))) == 1
        await decoder.quiet()


async def test_the_queue_is_bounded_in_requests_and_in_tokens() -> None:
    fault = Fault()
    async with decoding(
        decoder_artefact(), slots=1, max_queue=2, max_queue_tokens=40, wrap=fault
    ) as decoder:
        running = decoder.submit(request(ids(5), 40))
        await running.tokens_there(1)
        fault.runner.pause()
        await asyncio.to_thread(fault.runner.paused.wait, 30)
        first = decoder.submit(request(ids(30), 2))
        with pytest.raises(QueueTokensFull):
            decoder.submit(request(ids(11), 2))
        second = decoder.submit(request(ids(10), 2))
        with pytest.raises(QueueFull, match="2 requests are waiting"):
            decoder.submit(request(ids(1), 2))
        fault.runner.resume.set()
        await succeed(running, first, second)
        await decoder.tokens(request(ids(1), 2))
        await decoder.quiet()


async def test_deadlines_hold_in_the_queue_and_while_running() -> None:
    fault = Fault()
    async with decoding(decoder_artefact(), slots=1, wrap=fault) as decoder:
        soon = time.monotonic() + 0.5
        running = decoder.submit(request(ids(5), 100, deadline=soon))
        queued = decoder.submit(request(ids(5), 5, deadline=soon))
        patient = decoder.submit(request(ids(5), 5))
        await running.tokens_there(1)
        fault.runner.pause()
        await asyncio.to_thread(fault.runner.paused.wait, 30)
        await asyncio.sleep(max(0.0, soon - time.monotonic()) + 0.01)
        fault.runner.resume.set()
        assert isinstance(await running.error(), DeadlinePassed)
        assert isinstance(await queued.error(), DeadlinePassed)
        await succeed(patient)
        await decoder.quiet()


async def test_no_request_outlives_the_longest_time() -> None:
    async with decoding(decoder_artefact(), max_request_seconds=0.0) as decoder:
        assert isinstance(await decoder.submit(request(ids(5), 100)).error(), DeadlinePassed)


async def test_draining_refuses_new_work_and_completes_what_was_accepted() -> None:
    async with decoding(decoder_artefact(), slots=1) as decoder:
        accepted = [decoder.submit(request(ids(5), 20)) for _ in range(3)]
        decoder.engine.drain()
        with pytest.raises(Draining):
            decoder.submit(request(ids(5)))
        await succeed(*accepted)
        assert decoder.engine.alive


async def test_stopping_ends_what_is_left() -> None:
    fault = Fault()
    async with decoding(decoder_artefact(), slots=1, wrap=fault) as decoder:
        left = [decoder.submit(request(ids(5), 100)) for _ in range(3)]
        await left[0].tokens_there(1)
        await asyncio.to_thread(decoder.engine.stop)
        for mailbox in left:
            assert isinstance(await mailbox.error(), Interrupted)
        assert not decoder.engine.alive
        with pytest.raises(Draining):
            decoder.submit(request(ids(5)))
        await decoder.quiet()


async def test_a_row_that_fails_fails_alone(tmp_path: Path) -> None:
    artefact = scripted_artefact(tmp_path / "scripted", [*SCRIPT[:40], 7, *SCRIPT[41:]])
    fault = Fault()
    async with decoding(artefact, slots=4, wrap=fault) as decoder:
        good = [decoder.submit(request(ids(length), 30)) for length in (3, 5)]
        culprit = decoder.submit(request(ids(31), 30))  # says 7 as its tenth token
        last = decoder.submit(request(ids(4), 30))
        fault.runner.poison = {7}
        assert isinstance(await culprit.error(), StepFailed)
        await succeed(*good, last)
        assert [m.tokens() for m in (*good, last)] == [SCRIPT[n - 1 : n + 29] for n in (3, 5, 4)]
        assert culprit.tokens()[-1] == 7
        assert decoder.engine.alive
        await decoder.quiet()


async def test_a_prompt_that_fails_fails_alone() -> None:
    fault = Fault()
    async with decoding(decoder_artefact(), wrap=fault) as decoder:
        alone = await decoder.tokens(request(ids(20), 40))
        poison = next(token for token in range(10) if token not in alone)
        fault.runner.poison = {poison}
        stream = decoder.submit(request(ids(20), 40))
        culprits = [decoder.submit(request([*ids(20), poison], 5, n=2)) for _ in range(2)]
        for culprit in culprits:
            assert isinstance(await culprit.error(), StepFailed)
        await succeed(stream)
        assert stream.tokens() == alone
        await decoder.quiet()


async def test_an_engine_whose_rows_all_fail_goes_on_while_its_probe_succeeds() -> None:
    fault = Fault()
    async with decoding(decoder_artefact(), wrap=fault) as decoder:
        alone = await decoder.tokens(request(ids(6), 20))
        victims = [decoder.submit(request(ids(5), 100)) for _ in range(2)]
        await victims[1].tokens_there(2)
        fault.runner.blind = True
        for victim in victims:
            assert isinstance(await victim.error(), StepFailed)
        fault.runner.blind = False
        assert decoder.engine.alive
        assert await decoder.tokens(request(ids(6), 20)) == alone
        await decoder.quiet()


async def test_an_engine_that_cannot_run_at_all_dies_and_leaves_nobody_waiting() -> None:
    fault = Fault()
    async with decoding(decoder_artefact(), slots=2, wrap=fault) as decoder:
        victims = [decoder.submit(request(ids(5), 100)) for _ in range(4)]
        await victims[0].tokens_there(2)
        fault.runner.broken = True
        for victim in victims:
            assert isinstance(await victim.error(), StepFailed)
        assert not decoder.engine.alive
        with pytest.raises(Draining):
            decoder.submit(request(ids(5)))
        await decoder.quiet()


async def test_non_finite_logits_fail_their_request_alone(tmp_path: Path) -> None:
    artefact = scripted_artefact(tmp_path / "scripted", [*SCRIPT[:40], 7, *SCRIPT[41:]])
    fault = Fault()
    async with decoding(artefact, wrap=fault) as decoder:
        fault.runner.spoil = {7}
        good = decoder.submit(request(ids(3), 30))
        culprit = decoder.submit(request(ids(31), 30, n=2))
        assert isinstance(await culprit.error(), NonFinite)
        await succeed(good)
        assert good.tokens() == SCRIPT[2:32]
        assert decoder.metric("nonfinite_outputs_total") >= 1
        await decoder.quiet()


async def test_a_token_that_cannot_be_taken_fails_its_request_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However it raises: the caller is told nothing of it, nor that it was the caller's fault."""
    artefact = scripted_artefact(tmp_path / "scripted", [*SCRIPT[:40], 7, *SCRIPT[41:]])
    push = Detokenizer.push

    def push_all_but_one(detokenizer: Detokenizer, token_id: int) -> str:
        if token_id == 7:
            raise InvalidInput("7 is no token")
        return push(detokenizer, token_id)

    monkeypatch.setattr(Detokenizer, "push", push_all_but_one)
    async with decoding(artefact, slots=5) as decoder:
        several = decoder.submit(request(ids(31), 30, n=2))
        good = decoder.submit(request(ids(3), 30))
        search = decoder.submit(replace(request(ids(31), 30), beam=Beam(2)))
        for culprit in (several, search):
            error = await culprit.error()
            assert isinstance(error, StepFailed)
            assert "7" not in str(error)
        await succeed(good)
        assert good.tokens() == SCRIPT[2:32]
        await decoder.quiet()


async def test_a_slot_that_held_infinities_serves_the_next_request_as_ever(tmp_path: Path) -> None:
    artefact = tmp_path / "poisoned"
    shutil.copytree(learned_decoder_artefact(), artefact)
    name = "decoder.embedding.tokens.weight"
    weights = read_weight(artefact, name)
    weights[77] = np.nan
    write_weight(artefact, name, weights)
    reseal(artefact)
    async with decoding(artefact, slots=1) as decoder:
        alone = await decoder.tokens(request(ids(20, start=100), 10))
        assert isinstance(await decoder.submit(request([*[77] * 100, 5], 10)).error(), NonFinite)
        assert await decoder.tokens(request(ids(20, start=100), 10)) == alone
        assert decoder.metric("nonfinite_outputs_total") == 1


async def test_events_of_a_step_take_one_hop(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.get_running_loop()
    hops = 0
    hop = loop.call_soon_threadsafe

    def counted(*arguments: object) -> object:
        nonlocal hops
        hops += 1
        return hop(*arguments)  # type: ignore[arg-type]

    async with decoding(decoder_artefact(), slots=4) as decoder:
        monkeypatch.setattr(loop, "call_soon_threadsafe", counted)
        mailboxes = [decoder.submit(request(ids(5), 30)) for _ in range(4)]
        await succeed(*mailboxes)
        assert sum(len(mailbox.tokens()) for mailbox in mailboxes) == 120
        assert hops <= decoder.trace.step + 1
        assert decoder.trace.step < 60
        monkeypatch.undo()


async def test_counters_add_up() -> None:
    async with decoding(decoder_artefact(), slots=2) as decoder:
        await succeed(*[decoder.submit(request(ids(20), 6)) for _ in range(3)])
        assert decoder.metric("tokens_total", kind="prompt") == 60
        assert decoder.metric("tokens_total", kind="generated") == 18
        assert decoder.metric("engine_steps_total", phase="prefill") == 6
        assert decoder.metric("batch_tokens_sum", phase="prefill") == 60
        assert decoder.metric("batch_tokens_sum", phase="decode") == 15, (
            "first tokens are prefill's"
        )
        assert decoder.metric("time_to_first_token_seconds_count") == 3
        assert decoder.metric("inter_token_latency_seconds_count") == 15
        assert decoder.metric("request_prompt_tokens_sum") == 60
        assert decoder.metric("request_generated_tokens_sum") == 18
        assert decoder.metric("cache_capacity_tokens") == 256


async def test_a_storm_changes_nobodys_tokens() -> None:
    """Random lengths, completions, seeds and cancellations: who completes equals itself alone."""
    draw = random.Random(20)
    wanted = [
        request(
            ids(draw.randint(1, 90), start=draw.randint(5, 60)),
            draw.randint(1, 30),
            seed=draw.choice([None, draw.randint(0, 99)]),
        )
        for _ in range(40)
    ]
    async with decoding(decoder_artefact(), slots=5) as decoder:
        alone = [await decoder.tokens(each) for each in wanted]
        mailboxes = [decoder.submit(each) for each in wanted]
        cancelled = draw.sample(mailboxes, 10)
        for victim in cancelled:
            await asyncio.sleep(draw.random() * 0.01)
            if not victim.ended.is_set():
                decoder.cancel(victim)
        for mailbox, expected in zip(mailboxes, alone, strict=True):
            if mailbox in cancelled:
                assert mailbox.tokens() == expected[: len(mailbox.tokens())]
            else:
                await succeed(mailbox)
                assert mailbox.tokens() == expected
        await decoder.quiet()
        assert max(len(event.tickets) for event in decoder.trace.of(Did.DECODE)) == 5


async def test_forty_streams_cancelled_at_once_leave_nothing_behind() -> None:
    """MET-01."""
    async with decoding(decoder_artefact(), slots=4) as decoder:
        mailboxes = [decoder.submit(request(ids(8), 100)) for _ in range(40)]
        await mailboxes[3].tokens_there(1)
        for mailbox in mailboxes:
            decoder.cancel(mailbox)
        await decoder.quiet()
        stages = [
            decoder.metric("requests_cancelled_total", stage=s) for s in ("queued", "running")
        ]
        assert sum(stages) == 40
        assert stages[1] >= 4
