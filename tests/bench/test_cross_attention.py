"""Whatever way sources are read, the answer is the same: only then may times be compared."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bench.cross_attention import LENGTHS, WAYS, WIDTH, Array, Step, bind, open_layer

_CAPACITY = 130
# The others are the exporter's own, which has tests of them.
_PARAMETERS = [
    pytest.param(way, marks=[] if way == "whole slots" else [pytest.mark.full]) for way in WAYS
]


@pytest.mark.parametrize("way", _PARAMETERS)
def test_every_way_is_attention_to_each_source_alone(way: str, tmp_path: Path) -> None:
    session, step = open_layer(WAYS[way], tmp_path), Step.random(_CAPACITY)
    before = step.key.tobytes(), step.value.tobytes()
    binding = bind(session, step)
    session.run_with_iobinding(binding)
    found = binding.get_outputs()[0].numpy()
    for row, length in enumerate(LENGTHS):
        wanted = _attend(step.query[row, 0], step.key[row, :, :length], step.value[row, :, :length])
        np.testing.assert_allclose(found[row, 0], wanted, atol=1e-5)
    assert (step.key.tobytes(), step.value.tobytes()) == before


def _attend(query: Array, keys: Array, values: Array) -> Array:
    """`[H, D]` over `[H, K, D]`: each head's mean of its values, weighted by softmax."""
    scores = np.exp(np.einsum("hd,hkd->hk", query, keys) / np.sqrt(WIDTH))
    mixed: Array = np.einsum("hk,hkd->hd", scores / scores.sum(axis=1, keepdims=True), values)
    return mixed
