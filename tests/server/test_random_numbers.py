"""Numbers depend on seed, completion and position alone, and are uniform."""

from __future__ import annotations

import numpy as np

from server.random_numbers import uniform

LARGEST = 2**64 - 1


def test_a_number_is_what_philox_says() -> None:
    # Philox-4x64-10 of a known key and counter; pinned, because clients rely on their seeds.
    assert uniform(42, 0, 7) == 0.4074136540795371


def test_every_argument_matters() -> None:
    arguments = [(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1), (LARGEST, 0, 0), (0, 1, 1)]
    assert len({uniform(*each) for each in arguments}) == len(arguments)


def test_numbers_are_uniform_and_below_one() -> None:
    numbers = [
        uniform(5, completion, position) for completion in range(4) for position in range(1000)
    ]
    assert 0 <= min(numbers) < max(numbers) < 1
    observed, _ = np.histogram(numbers, bins=20, range=(0, 1))
    statistic = float(((observed - 200) ** 2 / 200).sum())
    assert statistic < 43.8  # chi-square, 19 degrees of freedom, p = 0.001


def test_neighbouring_positions_are_not_correlated() -> None:
    numbers = np.array([uniform(5, 0, position) for position in range(2000)])
    assert abs(np.corrcoef(numbers[:-1], numbers[1:])[0, 1]) < 0.07
