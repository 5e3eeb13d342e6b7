"""Draws the calls of a load: an endless, repeatable sequence."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence

from client.load.attempt import Attempt
from client.load.profile import Plan
from client.load.reference import Reference

# Seconds, from before anything can have happened to after most calls have ended; short ones are as
# frequent as long ones, on a logarithmic scale.
_MOMENTS = (0.002, 5.0)


def draw_attempts(plan: Plan, references: Sequence[Reference], prefix: str) -> Iterator[Attempt]:
    """Attempts of the plan's profile, with ids that begin with `prefix`."""
    draw, profile = random.Random(plan.seed), plan.profile
    kinds, weights = zip(*profile.kinds.items(), strict=True)
    questions = {
        kind: [each.question for each in references if each.answers(kind)] for kind in kinds
    }
    number = 0
    while True:
        number += 1
        [kind] = draw.choices(kinds, weights)
        manner = draw.random()
        leaves = manner < profile.leaving
        hurried = not leaves and manner < profile.leaving + profile.hurried
        moment = math.exp(draw.uniform(*map(math.log, _MOMENTS)))
        yield Attempt(
            id=f"{prefix}-{number}",
            kind=kind,
            question=draw.choice(questions[kind]),
            leaves_after=moment if leaves else None,
            deadline=_sooner(moment, plan.timeout) if hurried else plan.timeout,
        )


def _sooner(seconds: float, timeout: float | None) -> float:
    return seconds if timeout is None else min(seconds, timeout)
