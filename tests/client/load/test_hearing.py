from __future__ import annotations

import pytest

from client.load.answer import Written
from client.load.hearing import Hearing
from client.results import (
    Chunk,
    Event,
    Finished,
    FinishReason,
    GenerateTiming,
    Summary,
    Usage,
)

SUMMARY = Summary("model", 1, Usage(1, 2, 0), GenerateTiming(0, 0, 0, 0), "mine")
FINISHED = Finished(0, FinishReason.EOS)


def hear(*events: Event) -> Hearing:
    hearing = Hearing()
    for event in events:
        hearing.event(event)
    return hearing


def test_a_stream_is_put_together() -> None:
    hearing = hear(Chunk(0, "a", (1,)), Chunk(0, "", (2,)), Chunk(0, "bc", (3, 4)))
    assert hearing.answer == Written("abc", (1, 2, 3, 4), None)
    assert hearing.request_id is None
    for event in (FINISHED, SUMMARY):
        hearing.event(event)
    assert hearing.answer == Written("abc", (1, 2, 3, 4), FinishReason.EOS)
    assert hearing.request_id == "mine"
    assert hearing.disorder == ""


def test_nothing_is_no_answer() -> None:
    assert hear().answer is None


@pytest.mark.parametrize(
    "events",
    [
        [FINISHED, Chunk(0, "b", (2,)), SUMMARY],
        [FINISHED, FINISHED, SUMMARY],
        [FINISHED, SUMMARY, SUMMARY],
        [SUMMARY, FINISHED],
    ],
)
def test_what_is_said_after_the_end_is_noticed(events: list[Event]) -> None:
    assert hear(Chunk(0, "a", (1,)), *events).disorder
