"""Warping against transformers' warpers, ties and edges included."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from transformers import (
    LogitsProcessorList,
    MinPLogitsWarper,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from server.request import Sampling
from server.warping import largest, warp

VOCABULARY = 3000


def random_scores(seed: int, spread: float = 3.0) -> NDArray[np.float32]:
    generator = np.random.default_rng(seed)
    return (generator.standard_normal(VOCABULARY) * spread).astype(np.float32)


def probabilities(scores: NDArray[np.float32], sampling: Sampling) -> NDArray[np.float64]:
    """What `warp` leaves, as a distribution over the whole vocabulary."""
    candidates = warp(scores, sampling)
    weights = np.zeros(scores.size)
    weights[slice(None) if candidates.ids is None else candidates.ids] = candidates.weights
    total = float(weights.sum())
    return weights / total


def reference(scores: NDArray[np.float32], sampling: Sampling) -> NDArray[np.float64]:
    warpers = LogitsProcessorList()
    warpers.append(TemperatureLogitsWarper(float(sampling.temperature)))
    if sampling.top_k:
        warpers.append(TopKLogitsWarper(sampling.top_k))
    if sampling.top_p < 1:
        warpers.append(TopPLogitsWarper(sampling.top_p))
    if sampling.min_p:
        warpers.append(MinPLogitsWarper(float(sampling.min_p)))
    # In double precision, so that the reference is not what blurs an edge.
    warped = warpers(torch.zeros(1, 1, dtype=torch.long), torch.tensor(scores).double()[None])
    result: NDArray[np.float64] = warped.softmax(dim=-1)[0].numpy()
    return result


def assert_equals_transformers(scores: NDArray[np.float32], sampling: Sampling) -> None:
    got, wanted = probabilities(scores, sampling), reference(scores, sampling)
    likely = wanted > 1e-30  # less is nothing in float32
    np.testing.assert_array_equal(got[likely] > 0, True)
    np.testing.assert_array_equal(got[wanted == 0], 0)
    np.testing.assert_allclose(got[likely], wanted[likely], rtol=1e-4)


RULES = [
    Sampling(temperature=0.3),
    Sampling(temperature=1.7),
    Sampling(temperature=1, top_k=1),
    Sampling(temperature=1, top_k=50),
    Sampling(temperature=1, top_k=200),
    Sampling(temperature=1, top_k=VOCABULARY - 1),
    Sampling(temperature=1, top_p=0.9),
    Sampling(temperature=5, top_p=0.999),
    Sampling(temperature=1, top_p=1e-6),
    Sampling(temperature=1, min_p=0.05),
    Sampling(temperature=1, min_p=1),
    Sampling(temperature=0.8, top_k=300, top_p=0.7, min_p=0.02),
]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("sampling", RULES, ids=str)
def test_equals_transformers(sampling: Sampling, seed: int) -> None:
    assert_equals_transformers(random_scores(seed, spread=(0.1, 1, 3, 10)[seed]), sampling)


@pytest.mark.parametrize("top_k", [1, 7, 50, 500])
def test_top_k_keeps_all_that_equal_the_last(top_k: int) -> None:
    scores = np.round(random_scores(5)).astype(np.float32)
    assert_equals_transformers(scores, Sampling(temperature=1, top_k=top_k))
    assert np.count_nonzero(probabilities(scores, Sampling(temperature=1, top_k=top_k))) >= top_k


@pytest.mark.parametrize("top_p", [0.25, 0.5, 0.75])
def test_of_equal_scores_top_p_keeps_as_many_as_transformers(top_p: float) -> None:
    equal = np.zeros(2048, np.float32)  # the share of each is exact
    sampling = Sampling(temperature=1, top_p=top_p)
    kept = np.flatnonzero(probabilities(equal, sampling))
    assert kept.size == np.count_nonzero(reference(equal, sampling))
    np.testing.assert_array_equal(kept, np.arange(kept.size))


def test_top_p_that_is_reached_exactly_takes_no_more() -> None:
    scores = np.log(np.array([0.5, 0.25, 0.125, 0.125])).astype(np.float32)
    for top_p, count in [(0.5, 1), (0.51, 2), (0.75, 2), (0.76, 3)]:
        kept = np.count_nonzero(probabilities(scores, Sampling(temperature=1, top_p=top_p)))
        assert kept == count


@given(
    values=st.lists(st.integers(-40, 40), min_size=1, max_size=3000),
    top_p=st.floats(1e-6, 1, exclude_max=True),
)
@settings(max_examples=200, deadline=None)
def test_nucleus_is_the_smallest_that_reaches_top_p(values: list[int], top_p: float) -> None:
    scores = np.array([value / 4 for value in values], np.float32)
    everything = probabilities(scores, Sampling(temperature=1))
    kept = everything[probabilities(scores, Sampling(temperature=1, top_p=top_p)) > 0]
    assert kept.sum() >= top_p - 1e-9
    assert kept.sum() - kept.min() <= top_p + 1e-9
    assert np.array_equal(np.sort(kept), np.sort(everything)[-kept.size :])


@given(values=st.lists(st.integers(-20, 20), min_size=1, max_size=500), count=st.integers(1, 600))
@settings(deadline=None)
def test_largest_equals_sorting(values: list[int], count: int) -> None:
    array = np.array(values, np.float32)
    last = np.sort(array)[-min(count, array.size)]
    np.testing.assert_array_equal(largest(array, count), np.flatnonzero(array >= last))


def test_forbidden_tokens_are_never_drawn() -> None:
    scores = np.array([-np.inf, 1, -np.inf, 0], np.float32)
    candidates = warp(scores, Sampling(temperature=100, top_p=0.9999))
    assert {candidates.draw(number) for number in np.linspace(0, 1, 99, endpoint=False)} == {1, 3}


def test_extreme_scores_and_temperatures_stay_finite() -> None:
    scores = np.array([3e38, -3e38, 0], np.float32)
    for temperature in (1e-4, 1, 100):
        assert warp(scores, Sampling(temperature=temperature)).draw(0.999) == 0


@given(
    weights=st.lists(st.integers(0, 3), min_size=1, max_size=300).filter(any),
    number=st.floats(0, 1, exclude_max=True),
)
@settings(deadline=None)
def test_draw_inverts_the_cumulative_distribution(weights: list[int], number: float) -> None:
    with np.errstate(divide="ignore"):
        scores = np.log(np.array(weights, np.float32))
    cumulative = np.cumsum(np.array(weights) / sum(weights))
    drawn = warp(scores, Sampling(temperature=1)).draw(number)
    assert weights[drawn] > 0
    assert cumulative[drawn] >= number - 1e-6
    assert cumulative[drawn] - weights[drawn] / sum(weights) <= number + 1e-6
