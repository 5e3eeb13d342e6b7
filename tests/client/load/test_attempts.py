from __future__ import annotations

from collections import Counter
from itertools import islice

import pytest

from client.load.answer import Vectors, Written
from client.load.attempts import draw_attempts
from client.load.profile import PROFILES, Kind, LoadError, Plan
from client.load.question import EmbedQuestion, GenerateQuestion
from client.load.reference import Reference
from client.results import FinishReason

REFERENCES = [
    Reference(EmbedQuestion("model", ("a",)), Vectors(((1.0,),))),
    Reference(GenerateQuestion("model", "a", 1, 0.0, 1), Written("", (), FinishReason.EOS)),
]
MIXED = Plan(PROFILES["mixed"], clients=1, seconds=1.0)


def test_the_mixture_is_the_profile() -> None:
    drawn = list(islice(draw_attempts(MIXED, REFERENCES, "load"), 4000))
    assert len({attempt.id for attempt in drawn}) == len(drawn)
    kinds = Counter(attempt.kind for attempt in drawn)
    for kind, weight in MIXED.profile.kinds.items():
        assert kinds[kind] / len(drawn) == pytest.approx(weight, abs=0.03)
    for attempt in drawn:
        assert (attempt.kind is Kind.EMBED) == isinstance(attempt.question, EmbedQuestion)
        assert attempt.leaves_after is None or attempt.deadline is None
    leaving = sum(attempt.leaves_after is not None for attempt in drawn)
    hurried = sum(attempt.deadline is not None for attempt in drawn)
    assert leaving / len(drawn) == pytest.approx(MIXED.profile.leaving, abs=0.03)
    assert hurried / len(drawn) == pytest.approx(MIXED.profile.hurried, abs=0.03)


def test_nobody_waits_longer_than_the_timeout() -> None:
    plan = Plan(PROFILES["mixed"], clients=1, seconds=1.0, timeout=0.1)
    deadlines = [each.deadline for each in islice(draw_attempts(plan, REFERENCES, "load"), 400)]
    assert max(deadline for deadline in deadlines if deadline) == 0.1
    assert None not in deadlines
    assert min(deadline for deadline in deadlines if deadline) < 0.1


def test_a_ramp_needs_a_rate() -> None:
    with pytest.raises(LoadError, match="--rate"):
        Plan(PROFILES["embed"], clients=1, seconds=1.0, ramp=True)
