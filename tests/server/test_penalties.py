"""Penalties against transformers' processors and against OpenAI's definition."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from transformers import RepetitionPenaltyLogitsProcessor

from server.penalties import Penalties
from server.request import Sampling

VOCABULARY = 200


def scores(seed: int) -> NDArray[np.float32]:
    return np.random.default_rng(seed).standard_normal(VOCABULARY).astype(np.float32) * 5


def penalised(
    sampling: Sampling, prompt: list[int], generated: list[int], before: NDArray[np.float32]
) -> NDArray[np.float32]:
    penalties = Penalties(sampling, prompt, VOCABULARY)
    for token in generated:
        penalties.count(token)
    after = before.copy()
    penalties.apply(after)
    return after


@pytest.mark.parametrize("penalty", [0.5, 0.9, 1.1, 1.3, 10.0])
def test_repetition_equals_transformers(penalty: float) -> None:
    prompt, generated = [3, 7, 7, 150], [8, 3, 199, 8]
    wanted = RepetitionPenaltyLogitsProcessor(penalty)(
        torch.tensor([prompt + generated]), torch.tensor(scores(1))[None]
    )
    got = penalised(Sampling(repetition_penalty=penalty), prompt, generated, scores(1))
    np.testing.assert_allclose(got, wanted[0].numpy(), rtol=1e-6)


@given(
    prompt=st.lists(st.integers(0, VOCABULARY - 1), max_size=20),
    generated=st.lists(st.integers(0, VOCABULARY - 1), max_size=200),
    presence=st.floats(-2, 2),
    frequency=st.floats(-2, 2),
)
@settings(deadline=None)
def test_presence_and_frequency_count_generated_tokens(
    prompt: list[int], generated: list[int], presence: float, frequency: float
) -> None:
    sampling = Sampling(presence_penalty=presence, frequency_penalty=frequency)
    wanted = scores(2).astype(np.float64)
    for token, count in Counter(generated).items():
        wanted[token] -= presence + frequency * count
    np.testing.assert_allclose(penalised(sampling, prompt, generated, scores(2)), wanted, atol=1e-3)


def test_repetition_comes_before_presence() -> None:
    sampling = Sampling(repetition_penalty=2.0, presence_penalty=1.0)
    before = np.full(VOCABULARY, 4, np.float32)
    after = penalised(sampling, [5], [6], before)
    assert (after[5], after[6], after[7]) == (2, 1, 4)


def test_a_prompt_may_hold_ids_without_logits() -> None:
    after = penalised(Sampling(repetition_penalty=2.0), [VOCABULARY + 5], [], scores(3))
    np.testing.assert_array_equal(after, scores(3))


def test_the_smallest_penalty_does_not_overflow() -> None:
    after = penalised(Sampling(repetition_penalty=1e-40), [1, 2], [], scores(4))
    assert np.isfinite(after).all()
