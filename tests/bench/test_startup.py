"""Figures of several servers become a median and a list."""

from __future__ import annotations

from bench.startup import columns


def test_a_figure_is_the_median_beside_all_of_them() -> None:
    assert columns([3.0, 1.0, 2.04], 1, "ms") == ("2.0 ms", "3.0, 1.0, 2.0")
