"""Beam search in the decoder engine: transformers' beams, whoever else is in the batch."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from server.decoder_runner import DecoderRunner
from server.errors import InvalidInput, NonFinite, StepFailed
from server.request import (
    Beam,
    Chunk,
    Finished,
    FinishReason,
    GenerationRequest,
    Output,
    Sampling,
    Stopping,
    Summary,
)
from server.scheduler import Move
from server.tokenizer import Tokenizer
from server.trace import Did
from tests.artefacts import decoder_artefact
from tests.server.engines import (
    Decoding,
    FaultyRunner,
    Logits,
    Mailbox,
    artefact,
    decoding,
    request,
)
from tests.server.llama import CAPACITY, beams_of_transformers, llama_artefact


def search(
    prompt: list[int],
    width: int,
    tokens: int = 12,
    *,
    length_penalty: float = 1.0,
    eos_ids: tuple[int, ...] = (),
    min_new_tokens: int = 0,
    repetition_penalty: float = 1.0,
    n: int | None = None,
    stop: tuple[str, ...] = (),
    output: Output = Output(),  # noqa: B008 - frozen
) -> GenerationRequest:
    return GenerationRequest(
        tuple(prompt),
        Sampling(repetition_penalty=repetition_penalty),
        Stopping(tokens, min_new_tokens, eos_ids=eos_ids, stop=stop),
        output,
        n=width if n is None else n,
        beam=Beam(width, length_penalty),
    )


def ids(length: int, start: int = 10) -> list[int]:
    return [start + (i * 7) % 200 for i in range(length)]


async def beams(decoder: Decoding, wanted: GenerationRequest) -> list[tuple[int, ...]]:
    return await beams_in(decoder.submit(wanted))


async def beams_in(mailbox: Mailbox) -> list[tuple[int, ...]]:
    """The tokens of each completion, once all are there."""
    end = await mailbox.end()
    assert isinstance(end, Summary), end
    chunks = [event for event in mailbox.events if isinstance(event, Chunk)]
    assert end.completion_tokens == sum(len(chunk.token_ids) for chunk in chunks)
    return [chunk.token_ids for chunk in chunks]


MANY_ENDS = tuple(range(20, 60))


@pytest.mark.parametrize("width", [2, 4])
@pytest.mark.parametrize(
    ("length_penalty", "eos_ids", "min_new_tokens", "repetition_penalty"),
    [
        (1.0, (), 0, 1.0),
        (0.5, MANY_ENDS, 0, 1.0),
        (1.0, MANY_ENDS, 6, 1.0),
        (2.0, MANY_ENDS, 3, 1.3),
    ],
)
async def test_the_beams_are_those_of_transformers(
    width: int,
    length_penalty: float,
    eos_ids: tuple[int, ...],
    min_new_tokens: int,
    repetition_penalty: float,
) -> None:
    async with decoding(llama_artefact(), slots=5, capacity=CAPACITY) as decoder:
        for length in (1, 5, 40):
            wanted = search(
                ids(length),
                width,
                length_penalty=length_penalty,
                eos_ids=eos_ids,
                min_new_tokens=min_new_tokens,
                repetition_penalty=repetition_penalty,
            )
            assert await beams(decoder, wanted) == beams_of_transformers(
                ids(length),
                width,
                eos_ids=eos_ids,
                max_new_tokens=12,
                min_new_tokens=min_new_tokens or None,
                length_penalty=length_penalty,
                repetition_penalty=repetition_penalty,
            )
        await decoder.quiet()


async def test_searches_and_streams_in_one_batch_equal_each_alone() -> None:
    draw = random.Random(3)
    wanted = [
        search(ids(17), 4, 30),
        request(ids(5), 40),
        search(ids(60), 2, 20, length_penalty=0.3, eos_ids=MANY_ENDS, n=1),
        request(ids(33), 25, seed=4, n=2),
        search(ids(17), 3, 25, eos_ids=MANY_ENDS, min_new_tokens=4),
        request(ids(9), 30, seed=9),
        search(ids(1), 5, 15, repetition_penalty=1.2),
    ]

    async def everything(decoder: Decoding, each: GenerationRequest) -> list[object]:
        mailbox = decoder.submit(each)
        assert isinstance(await mailbox.end(), Summary)
        return list(mailbox.events[:-1])

    async with decoding(llama_artefact(), slots=9, capacity=CAPACITY, cached_chunks=9) as decoder:
        alone = [await everything(decoder, each) for each in wanted]
        for _ in range(3):
            order = draw.sample(range(len(wanted)), len(wanted))
            together = await asyncio.gather(*(everything(decoder, wanted[i]) for i in order))
            assert [sorted(events, key=str) for events in together] == [
                sorted(alone[i], key=str) for i in order
            ]
        shared = [len(set(event.tickets)) for event in decoder.trace.of(Did.DECODE)]
        assert max(shared) >= 3
        await decoder.quiet()


async def test_the_best_n_come_whole_at_the_end_with_text_and_log_probabilities() -> None:
    output = Output(logprobs=True, top_logprobs=2)
    async with decoding(llama_artefact(), capacity=CAPACITY) as decoder:
        mailbox = decoder.submit(search(ids(8), 4, 10, n=2, output=output))
        summary = await mailbox.end()
        assert isinstance(summary, Summary)
        assert [type(event) for event in mailbox.events] == [
            *[Chunk, Finished] * 2,
            Summary,
        ]
        assert summary.completion_tokens == 20
        assert decoder.metric("tokens_total", kind="generated") == 20
        source = artefact(llama_artefact())
        tokenizer = Tokenizer(source.tokenizer, source.manifest.vocabulary_size)
        totals = []
        for index, chunk in enumerate(mailbox.events[:4:2]):
            assert isinstance(chunk, Chunk)
            assert chunk.index == index
            assert chunk.text == tokenizer.decode(list(chunk.token_ids))
            assert tuple(each.token_id for each in chunk.logprobs) == chunk.token_ids
            assert all(len(each.top) == 2 for each in chunk.logprobs)
            totals.append(sum(each.logprob for each in chunk.logprobs))
        assert totals == sorted(totals, reverse=True), "of equal lengths the likelier is better"
        assert all(end.reason is FinishReason.LENGTH for end in mailbox.finished())


async def test_a_beam_ends_at_its_stop_string() -> None:
    """Whatever the best beam says without one, it says up to there with one."""
    async with decoding(llama_artefact(), capacity=CAPACITY) as decoder:
        free = decoder.submit(search(ids(8), 3, 20, n=1))
        await free.end()
        [chunk] = [event for event in free.events if isinstance(event, Chunk)]
        stop = chunk.text[6:9]
        assert "\ufffd" not in stop
        stopped = decoder.submit(search(ids(8), 3, 20, stop=(stop,), length_penalty=0.0))
        await stopped.end()
        ends = stopped.finished()
        texts = [event.text for event in stopped.events if isinstance(event, Chunk)]
        assert all(stop not in text for text in texts)
        assert any(end.reason is FinishReason.STOP and end.stop_sequence == stop for end in ends)
        assert any(chunk.text.startswith(text) for text in texts)


async def test_a_search_waits_for_all_its_rows_and_is_refused_if_there_are_too_few() -> None:
    async with decoding(llama_artefact(), slots=4, capacity=CAPACITY) as decoder:
        with pytest.raises(InvalidInput, match="is 5; it must be from 1 to 4"):
            decoder.submit(search(ids(4), 5, n=1))
        running = decoder.submit(request(ids(5), 60))
        await running.tokens_there(1)
        waiting = decoder.submit(search(ids(4), 4, 5))
        behind = decoder.submit(request(ids(4), 2))
        for mailbox in (running, waiting, behind):
            assert isinstance(await mailbox.end(), Summary)
        first = {
            mailbox: next(
                event.step
                for event in decoder.trace.of(Did.PREFILL)
                if decoder.tickets[mailbox] in event.tickets
            )
            for mailbox in (waiting, behind)
        }
        last_of_running = max(
            event.step
            for event in decoder.trace.of(Did.DECODE)
            if decoder.tickets[running] in event.tickets
        )
        assert first[behind] > first[waiting] > last_of_running
        await decoder.quiet()


async def test_a_cancelled_search_frees_its_rows() -> None:
    async with decoding(llama_artefact(), slots=4, capacity=CAPACITY) as decoder:
        alone = await beams(decoder, search(ids(9), 2, 8))
        victim = decoder.submit(search(ids(9), 4, 100))
        last = decoder.submit(search(ids(9), 2, 8))
        async with asyncio.timeout(30):
            while decoder.metric("slots", state="used") < 4:  # noqa: ASYNC110 - nothing is sent
                await asyncio.sleep(0.002)
        decoder.cancel(victim)
        assert await beams_in(last) == alone
        assert victim.events == []
        await decoder.quiet()


class RecordingRunner(FaultyRunner):
    """Keeps the moves that it makes and the tokens that it decodes."""

    def __init__(self, runner: DecoderRunner) -> None:
        super().__init__(runner)
        self.moves: list[Move] = []
        self.decoded: set[int] = set()

        def move(move: Move) -> None:
            self.moves.append(move)
            runner.move(move)

        self.move = move

    def decode(self, tokens: Sequence[int], lengths: Sequence[int]) -> Logits:
        self.decoded |= set(tokens)
        return super().decode(tokens, lengths)


class Recording:
    """Makes a `RecordingRunner` and keeps it at hand."""

    runner: RecordingRunner

    def __call__(self, runner: DecoderRunner) -> RecordingRunner:
        self.runner = RecordingRunner(runner)
        return self.runner


async def test_a_search_that_fails_fails_alone() -> None:
    recording = Recording()
    async with decoding(llama_artefact(), slots=5, capacity=CAPACITY, wrap=recording) as decoder:
        runner = recording.runner
        alone = await decoder.tokens(request(ids(5), 30))
        other = await beams(decoder, search(ids(30), 2, 30))
        harmless = set(runner.decoded)
        searched = await beams(decoder, search(ids(9), 2, 30))
        fatal = next(t for tokens in searched for t in tokens[:-1] if t not in harmless)
        for error in (NonFinite, StepFailed):
            runner.spoil, runner.poison = ((fatal,), ()) if error is NonFinite else ((), (fatal,))
            stream = decoder.submit(request(ids(5), 30))
            neighbour = decoder.submit(search(ids(30), 2, 30))
            culprit = decoder.submit(search(ids(9), 2, 30))
            assert isinstance(await culprit.error(), error)
            assert await beams_in(neighbour) == other
            assert isinstance(await stream.end(), Summary)
            assert stream.tokens() == alone
        assert decoder.metric("nonfinite_outputs_total") == 1
        await decoder.quiet()


async def test_rows_are_copied_behind_the_prompt_only_and_never_more_than_needed() -> None:
    recording = Recording()
    async with decoding(decoder_artefact(), slots=4, wrap=recording) as decoder:
        await beams(decoder, search(ids(50), 4, 20))
        moves = recording.runner.moves
        assert moves[:3] == [Move(0, row, 50) for row in (1, 2, 3)], "once, the prompt"
        forks = moves[3:]
        assert forks
        assert all(fork.start == 50 < fork.length for fork in forks)
        steps: dict[int, list[tuple[int, int]]] = {}
        for fork in forks:
            steps.setdefault(fork.length, []).append((fork.source, fork.destination))
        for copies in steps.values():
            destinations = [destination for _, destination in copies]
            assert len(set(destinations)) == len(destinations) < 4
            assert not {source for source, _ in copies} & set(destinations)


async def test_one_beam_of_width_two_is_no_worse_than_greedy() -> None:
    async with decoding(llama_artefact(), capacity=CAPACITY) as decoder:
        output = Output(logprobs=True)
        greedy = decoder.submit(replace(request(ids(8), 10), output=output))
        searched = decoder.submit(search(ids(8), 4, 10, n=1, output=output))
        totals = []
        for mailbox in (greedy, searched):
            await mailbox.end()
            chunks = [event for event in mailbox.events if isinstance(event, Chunk)]
            totals.append(sum(each.logprob for chunk in chunks for each in chunk.logprobs))
        assert totals[1] >= totals[0] - 1e-4
