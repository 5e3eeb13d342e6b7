from __future__ import annotations

import json
import math

import pytest

from client.load.attempt import Attempt, End, Outcome
from client.load.judge import Fault, Wrong
from client.load.profile import PROFILES, Kind, Plan
from client.load.question import EmbedQuestion
from client.load.report import report
from client.load.tally import Tally, first_tokens, latencies, percentile

FAULT = Fault(Wrong.LOST, "1", "gone")


def tally_of(*calls: tuple[Kind, End, float, float, float | None]) -> Tally:
    """A tally of calls, each a kind, an end, when it began, how long it took, its first token."""
    tally = Tally()
    for number, (kind, end, began, seconds, first) in enumerate(calls):
        tally.begun[kind] += 1
        attempt = Attempt(str(number), kind, EmbedQuestion("model", ("a",)))
        outcome = Outcome(attempt, end, seconds, first)
        tally.add(outcome, began, FAULT if end is End.FAILED else None)
    return tally


TALLY = tally_of(
    (Kind.STREAM, End.ANSWERED, 0.0, 2.0, 0.5),
    (Kind.STREAM, End.ANSWERED, 0.5, 1.0, 0.25),
    (Kind.STREAM, End.LEFT, 0.0, 9.0, 0.1),
    (Kind.EMBED, End.ANSWERED, 7.5, 0.5, None),
    (Kind.EMBED, End.FAILED, 2.0, 0.1, None),
)


def test_only_answers_have_times() -> None:
    assert latencies(TALLY.of(Kind.STREAM)) == [1.0, 2.0]
    assert first_tokens(TALLY.records) == [0.25, 0.5]
    assert TALLY.seconds == 9.0
    assert TALLY.answers_per_second == pytest.approx(3 / 9)
    assert Tally().answers_per_second == 0


@pytest.mark.parametrize(("share", "value"), [(0.5, 2), (0.51, 3), (0.75, 3), (1.0, 4), (0.0, 1)])
def test_a_percentile_is_a_value_that_occurred(share: float, value: float) -> None:
    assert percentile([1, 2, 3, 4], share) == value


def test_nothing_has_no_percentile() -> None:
    assert math.isnan(percentile([], 0.5))


def test_the_report_is_valid_json_with_everything_in_it() -> None:
    plan = Plan(PROFILES["mixed"], clients=2, seconds=9.0)
    content = json.loads(json.dumps(report(plan, [], TALLY), allow_nan=False))
    assert content["plan"]["profile"] == "mixed"
    assert content["calls"]["stream"]["ends"] == {"answered": 2, "left": 1}
    assert content["calls"]["stream"]["first_token"]["max"] == 0.5
    assert content["calls"]["embed"]["first_token"] == {}
    assert content["faults"] == [{"wrong": "lost", "request_id": "1", "detail": "gone"}]
    ended = {each["second"]: each["ends"] for each in content["timeline"]}
    assert ended == {
        1: {"answered": 1},
        2: {"answered": 1, "failed": 1},
        8: {"answered": 1},
        9: {"left": 1},
    }
