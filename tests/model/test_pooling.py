"""Pooling against naive loops."""

from __future__ import annotations

import math

import pytest
import torch

from model.config import Pooling, PoolingMode
from model.pooling import pool

LENGTHS = [5, 1, 3]
WIDTH = 4


def naive(rows: list[list[float]], mode: PoolingMode) -> list[float]:
    columns = list(zip(*rows, strict=True))
    match mode:
        case PoolingMode.MEAN:
            return [sum(column) / len(column) for column in columns]
        case PoolingMode.MAX:
            return [max(column) for column in columns]
        case PoolingMode.CLS:
            return rows[0]
        case PoolingMode.LAST:
            return rows[-1]


@pytest.mark.parametrize("mode", list(PoolingMode))
@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("beyond", [0.0, 1e30, math.inf, math.nan])
def test_pool(mode: PoolingMode, normalize: bool, beyond: float) -> None:
    states = torch.randn(len(LENGTHS), 5, WIDTH, generator=torch.Generator().manual_seed(0))
    for row, length in enumerate(LENGTHS):
        states[row, length:] = beyond
    vectors = pool(states, torch.tensor(LENGTHS), Pooling(mode, normalize))
    for row, length in enumerate(LENGTHS):
        expected = naive(states[row, :length].tolist(), mode)
        if normalize:
            size = math.sqrt(sum(value * value for value in expected))
            expected = [value / size for value in expected]
        assert vectors[row].tolist() == pytest.approx(expected, abs=1e-6)
