from __future__ import annotations

from dataclasses import replace

import grpc
import pytest

from client.errors import CallFailed
from client.load.answer import Vectors, Written
from client.load.attempt import Attempt, End, Outcome
from client.load.judge import Judge, Wrong
from client.load.profile import Kind
from client.load.question import EmbedQuestion, GenerateQuestion
from client.load.reference import Reference
from client.results import FinishReason

PROMPT = GenerateQuestion("model", "a", max_new_tokens=2, temperature=0.0, seed=1)
OTHER_PROMPT = replace(PROMPT, prompt="b")
TEXTS = EmbedQuestion("model", ("a", "b"))
WRITTEN = Written("é!", (3, 4), FinishReason.LENGTH)
OTHER_WRITTEN = Written("xy", (5, 6), FinishReason.EOS)
VECTORS = Vectors(((0.6, 0.8), (0.0, 1.0)))
JUDGE = Judge(
    [
        Reference(PROMPT, WRITTEN),
        Reference(OTHER_PROMPT, OTHER_WRITTEN),
        Reference(TEXTS, VECTORS),
    ]
)
STREAMED = Outcome(
    Attempt("mine", Kind.STREAM, PROMPT), End.ANSWERED, 0.1, answer=WRITTEN, request_id="mine"
)
EMBEDDED = Outcome(
    Attempt("mine", Kind.EMBED, TEXTS), End.ANSWERED, 0.1, answer=VECTORS, request_id="mine"
)
PART = Written("é", (3,), None)
FAILURE = CallFailed(grpc.StatusCode.INTERNAL, "broken")


@pytest.mark.parametrize(
    "outcome",
    [
        STREAMED,
        EMBEDDED,
        replace(EMBEDDED, answer=Vectors(((0.6, 0.8 + 5e-7), (0.0, 1.0)))),
        replace(STREAMED, end=End.LEFT, answer=PART, request_id=None),
        replace(STREAMED, end=End.EXPIRED, answer=PART, request_id=None),
        replace(STREAMED, end=End.REFUSED, answer=None, request_id=None),
    ],
)
def test_nothing_is_wrong(outcome: Outcome) -> None:
    assert JUDGE.fault(outcome) is None


@pytest.mark.parametrize(
    ("outcome", "wrong"),
    [
        (replace(STREAMED, end=End.FAILED, failure=FAILURE), Wrong.LOST),
        (replace(STREAMED, end=End.UNAVAILABLE, answer=None, failure=FAILURE), Wrong.LOST),
        (replace(STREAMED, answer=None), Wrong.LOST),
        (replace(STREAMED, answer=PART), Wrong.LOST),
        (replace(STREAMED, request_id=None), Wrong.LOST),
        (replace(STREAMED, disorder="a second end"), Wrong.DUPLICATED),
        (replace(STREAMED, end=End.LEFT, disorder="a second end"), Wrong.DUPLICATED),
        (replace(STREAMED, request_id="another's"), Wrong.SWAPPED),
        (replace(STREAMED, answer=OTHER_WRITTEN), Wrong.SWAPPED),
        (replace(STREAMED, answer=VECTORS), Wrong.SWAPPED),
        (replace(STREAMED, answer=replace(WRITTEN, text="e!")), Wrong.CHANGED),
        (replace(STREAMED, answer=replace(WRITTEN, token_ids=(3, 5))), Wrong.CHANGED),
        (replace(STREAMED, answer=replace(WRITTEN, finish_reason=FinishReason.EOS)), Wrong.CHANGED),
        (replace(STREAMED, end=End.LEFT, answer=Written("!", (3,), None)), Wrong.CHANGED),
        (replace(STREAMED, end=End.LEFT, answer=Written("é", (4,), None)), Wrong.CHANGED),
        (replace(STREAMED, end=End.LEFT, answer=Written("x", (5,), None)), Wrong.SWAPPED),
        (replace(EMBEDDED, answer=Vectors(((0.6, 0.8 + 5e-6), (0.0, 1.0)))), Wrong.CHANGED),
        (replace(EMBEDDED, answer=Vectors(((0.0, 1.0), (0.6, 0.8)))), Wrong.CHANGED),
        (replace(EMBEDDED, answer=Vectors(((0.6, 0.8),))), Wrong.CHANGED),
        (replace(EMBEDDED, answer=Vectors(((0.6, 0.8, 0.0), (0.0, 1.0)))), Wrong.CHANGED),
    ],
)
def test_what_is_wrong_is_named(outcome: Outcome, wrong: Wrong) -> None:
    fault = JUDGE.fault(outcome)
    assert fault is not None
    assert fault.wrong is wrong
    assert fault.request_id == "mine"
    assert fault.detail
