"""Counting errors, beside a slow count."""

from __future__ import annotations

from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples.g2p.dictionary import Entry
from examples.g2p.error_rates import ErrorRates, edit_distance, error_rates

PHRASES = st.lists(st.sampled_from(["AH0", "B", "K"]), max_size=7).map(tuple)


@cache
def slow_distance(first: tuple[str, ...], second: tuple[str, ...]) -> int:
    if not first or not second:
        return len(first) + len(second)
    return min(
        slow_distance(first[1:], second) + 1,
        slow_distance(first, second[1:]) + 1,
        slow_distance(first[1:], second[1:]) + (first[0] != second[0]),
    )


@given(PHRASES, PHRASES)
def test_edit_distance(first: tuple[str, ...], second: tuple[str, ...]) -> None:
    assert edit_distance(first, second) == slow_distance(first, second)


def test_the_nearest_pronunciation_counts() -> None:
    entry = Entry("either", (("IY1", "DH", "ER0"), ("AY1", "DH", "ER0", "Z")))
    rates = error_rates([("AY1", "DH", "ER0")], [entry], stress=True)
    assert rates.words == 1.0
    assert rates.phones == pytest.approx(1 / 3)
    assert error_rates([("AY1", "DH", "ER0", "Z")], [entry], stress=True).words == 0.0


def test_stress_counts_only_where_it_is_asked_for() -> None:
    entries = [Entry("a", (("AH0",),)), Entry("be", (("B", "IY1"),))]
    answers = [("AH1",), ("B", "IH1", "T")]
    with_stress = error_rates(answers, entries, stress=True)
    assert with_stress == ErrorRates(phones=3 / 3, words=1.0)
    without = error_rates(answers, entries, stress=False)
    assert without == ErrorRates(phones=2 / 3, words=0.5)
