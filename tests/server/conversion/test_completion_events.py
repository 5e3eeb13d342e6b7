"""Streamed and whole answers say the same of the same events."""

from __future__ import annotations

import pytest
from formerd.v1 import generation_pb2 as pb

from server.conversion.completion_events import AnswerWriter, SuccessEvent
from server.request import Chunk, Finished, FinishReason, Summary, TokenLogprob
from server.tokenizer import Tokenizer
from tests.checkpoints import byte_tokenizer

TOKENIZER = Tokenizer(byte_tokenizer().to_str().encode())
WRITER = AnswerWriter("decoder", seed=2**64 - 1, request_id="id", tokenizer=TOKENIZER)
LOGPROB = TokenLogprob(5, -0.5, top=((5, -0.5), (6, -1.5)))
SUMMARY = Summary(
    prompt_tokens=4,
    completion_tokens=5,
    cached_tokens=1,
    queue_seconds=0.1,
    prefill_seconds=0.2,
    decode_seconds=0.3,
    time_to_first_token_seconds=0.25,
)
EVENTS: list[SuccessEvent] = [
    Chunk(0, "a", (5,), (LOGPROB,)),
    Chunk(1, "", (6,)),
    Chunk(1, "é", (7, 8)),
    Finished(1, FinishReason.STOP, "!"),
    Chunk(0, "b", (9,)),
    Finished(0, FinishReason.LENGTH),
    SUMMARY,
]


def test_a_whole_answer_gathers_each_completion() -> None:
    response = WRITER.response(EVENTS, n=2)
    first, second = response.completions
    assert (first.index, first.text, list(first.token_ids)) == (0, "ab", [5, 9])
    assert (second.index, second.text, list(second.token_ids)) == (1, "é", [6, 7, 8])
    assert (first.finish_reason, first.stop_sequence) == (pb.FINISH_REASON_LENGTH, "")
    assert (second.finish_reason, second.stop_sequence) == (pb.FINISH_REASON_STOP, "!")
    assert (response.model, response.seed, response.request_id) == ("decoder", 2**64 - 1, "id")
    assert response.usage.cached_tokens == 1


def test_a_stream_says_the_same() -> None:
    whole = WRITER.response(EVENTS, n=2)
    stream = [WRITER.event(event) for event in EVENTS]
    for completion in whole.completions:
        chunks = [
            e.chunk for e in stream if e.HasField("chunk") and e.chunk.index == completion.index
        ]
        [end] = [
            e.finished
            for e in stream
            if e.HasField("finished") and e.finished.index == completion.index
        ]
        assert "".join(chunk.text for chunk in chunks) == completion.text
        assert [i for chunk in chunks for i in chunk.token_ids] == list(completion.token_ids)
        assert [p for chunk in chunks for p in chunk.logprobs] == list(completion.logprobs)
        assert end.finish_reason == completion.finish_reason
        assert end.stop_sequence == completion.stop_sequence
    last = stream[-1].summary
    assert (last.model, last.seed, last.request_id) == ("decoder", 2**64 - 1, "id")
    assert last.usage == whole.usage
    assert last.timing == whole.timing


def test_log_probabilities_name_their_tokens() -> None:
    [logprob] = WRITER.event(EVENTS[0]).chunk.logprobs
    assert (logprob.token, logprob.logprob) == (TOKENIZER.token(5), -0.5)
    assert [(top.token, top.logprob) for top in logprob.top] == [
        (TOKENIZER.token(5), -0.5),
        (TOKENIZER.token(6), -1.5),
    ]


@pytest.mark.parametrize("reason", FinishReason)
def test_every_reason_has_its_value(reason: FinishReason) -> None:
    value = WRITER.event(Finished(0, reason)).finished.finish_reason
    assert pb.FinishReason.Name(value) == f"FINISH_REASON_{reason.name}"
