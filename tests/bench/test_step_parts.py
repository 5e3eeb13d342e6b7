"""A stopwatch that knows what belongs to which iteration."""

from __future__ import annotations

import pytest

from bench.step_parts import OTHER, RUN, SAMPLER, Iteration, Stopwatch, stopwatch, typical
from server.decoder_worker import DecoderWorker


def test_calls_belong_to_the_iteration_that_makes_them() -> None:
    watch = Stopwatch()
    step = watch.timed(RUN, lambda: None)
    step()  # a warm-up is no iteration's
    iterate = watch.iteration(lambda calls: [step() for _ in range(calls)])
    iterate(2)
    iterate(1)
    assert [iteration.calls[RUN] for iteration in watch.iterations] == [2, 1]


def test_what_is_left_of_an_iteration_is_other() -> None:
    iterations = [
        Iteration({"iteration": 0.010, RUN: 0.006, SAMPLER: 0.001}),
        Iteration({"iteration": 0.030, RUN: 0.020, SAMPLER: 0.002}),
        Iteration({"iteration": 0.012, RUN: 0.007, SAMPLER: 0.001}),
    ]
    for iteration in iterations:
        for part in ("detokeniser", "delivery"):
            iteration.seconds[part] = 0.0
    parts = typical(iterations)
    assert parts[RUN] == pytest.approx(7.0)
    assert parts[OTHER] == pytest.approx(4.0)


def test_the_engine_is_left_as_it_was() -> None:
    """It also fails where a part that is timed has another name by now."""
    before = DecoderWorker.iterate
    with stopwatch():
        assert DecoderWorker.iterate is not before
    assert DecoderWorker.iterate is before
