"""Log-probabilities against torch."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from server.logprobs import token_logprob


@pytest.mark.parametrize("scale", [0.1, 3.0, 100.0])
def test_equals_log_softmax(scale: float) -> None:
    logits = (np.random.default_rng(0).standard_normal(5000) * scale).astype(np.float32)
    wanted = torch.tensor(logits).double().log_softmax(dim=-1)
    got = token_logprob(logits, 17, top=20)
    values, ids = wanted.topk(20)
    assert got.token_id == 17
    assert got.logprob == pytest.approx(float(wanted[17]), abs=1e-5)
    assert [token for token, _ in got.top] == ids.tolist()
    assert [value for _, value in got.top] == pytest.approx(values.tolist(), abs=1e-5)


def test_alternatives_are_none_unless_asked_for() -> None:
    assert token_logprob(np.zeros(10, np.float32), 3, top=0).top == ()


def test_the_lower_of_equal_alternatives_comes_first() -> None:
    logits = np.array([0, 2, 1, 2, 2], np.float32)
    assert [token for token, _ in token_logprob(logits, 0, top=3).top] == [1, 3, 4]


def test_more_alternatives_than_tokens_are_all_of_them() -> None:
    assert len(token_logprob(np.zeros(3, np.float32), 0, top=9).top) == 3
