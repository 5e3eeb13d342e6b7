"""Weights in blocks: how near they stay, and that they are read as they were written."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from export.blocks import BLOCK, Blocks

Weight = NDArray[np.float32]


def _random(rows: int, blocks: int, seed: int = 0) -> Weight:
    generator = np.random.default_rng(seed)
    return generator.standard_normal((rows, blocks * BLOCK)).astype(np.float32)


def _obvious_grid(weight: Weight) -> Weight:
    """From the least to the largest number of a block, in sixteen numbers."""
    blocks = weight.reshape(len(weight), -1, BLOCK)
    low = np.minimum(blocks.min(axis=2, keepdims=True), 0)
    scale = (np.maximum(blocks.max(axis=2, keepdims=True), 0) - low) / 15
    zero_point = np.rint(-low / scale)
    values = np.clip(np.rint(blocks / scale) + zero_point, 0, 15)
    restored: Weight = ((values - zero_point) * scale).reshape(weight.shape)
    return restored


def test_eight_bits_stay_within_half_a_step() -> None:
    weight = _random(5, 3)
    blocks = Blocks.encode(weight, 8)
    assert blocks.values.shape == (5, 3, BLOCK)
    assert np.all(np.abs(blocks.restore() - weight) <= blocks.steps() * 0.5001)
    assert blocks.steps().max() < np.abs(weight).max() / 100


def test_numbers_that_lie_on_a_grid_stay_as_they_are() -> None:
    """A checkpoint that was in 8-bit blocks before loses nothing."""
    generator = np.random.default_rng(0)
    values = generator.integers(-126, 127, (4, 2, BLOCK))
    values[:, :, 0] = 127
    scales = generator.uniform(0.01, 0.1, (4, 2, 1)).astype(np.float16).astype(np.float32)
    weight = (values * scales).astype(np.float32).reshape(4, -1)
    assert np.array_equal(Blocks.encode(weight, 8).restore(), weight)


def test_four_bits_come_closer_than_the_obvious_grid() -> None:
    weight = _random(64, 4) + np.float32(0.3)
    searched = Blocks.encode(weight, 4).restore()
    assert (
        np.square(searched - weight).sum() < 0.95 * np.square(_obvious_grid(weight) - weight).sum()
    )


def test_four_bits_hold_numbers_of_one_sign() -> None:
    weight = np.abs(_random(8, 2)) + np.float32(1)
    for sign in (1, -1):
        restored = Blocks.encode(sign * weight, 4).restore()
        np.testing.assert_allclose(restored, sign * weight, atol=0.3)


@pytest.mark.parametrize("bits", [4, 8])
def test_a_block_of_zeros_stays_zero(bits: int) -> None:
    assert not Blocks.encode(np.zeros((2, 2 * BLOCK), np.float32), bits).restore().any()


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("blocks", [1, 2, 3])
def test_what_is_packed_is_unpacked(bits: int, blocks: int) -> None:
    encoded = Blocks.encode(_random(5, blocks), bits)
    parts = encoded.parts()
    assert parts["values"].shape == (5, blocks, 4 * bits)
    unpacked = Blocks.unpack(bits, parts)
    for field in ("values", "scales", "zero_points"):
        assert np.array_equal(getattr(unpacked, field), getattr(encoded, field))


def test_a_row_does_not_depend_on_the_rows_beside_it() -> None:
    weight = _random(300, 32)  # more blocks than are searched at a time
    whole = Blocks.encode(weight, 4)
    alone = Blocks.encode(weight[290:291], 4)
    assert np.array_equal(whole.values[290:291], alone.values)
    assert np.array_equal(whole.scales[290:291], alone.scales)


@pytest.mark.parametrize("bits", [4, 8])
def test_what_is_not_finite_is_not_hidden(bits: int) -> None:
    weight = _random(2, 2)
    weight[1, 40] = np.nan
    restored = Blocks.encode(weight, bits).restore()
    assert np.isnan(restored[1, BLOCK:]).all()
    assert np.isfinite(restored[0]).all()
