"""Weights in 8 bits: close to what they were, and a graph that says nearly the same."""

from __future__ import annotations

import numpy as np

from bench.int8_artefact import quantised_blocks


def test_blocks_keep_weights_within_half_a_step() -> None:
    weight = np.random.default_rng(0).normal(size=(5, 96)).astype(np.float32)
    values, scales = quantised_blocks(weight)
    assert values.shape == (5, 3, 32)
    assert scales.shape == (5, 3)
    restored = (values.astype(np.float32) - 128) * scales[:, :, None]
    assert np.all(np.abs(restored - weight.reshape(5, 3, 32)) <= scales[:, :, None] * 0.501)


def test_a_block_of_zeros_stays_zero() -> None:
    values, scales = quantised_blocks(np.zeros((1, 32), np.float32))
    assert np.all(values == 128)
    assert np.all(scales == 0)
