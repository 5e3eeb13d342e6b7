"""The course of the learning rate, and the size of the model."""

from __future__ import annotations

import pytest
import torch

from examples.g2p.recipe import Recipe
from model.transformer import Transformer


def test_the_rate_rises_then_falls_along_a_cosine() -> None:
    recipe = Recipe(peak_rate=2.0, warm_up=0.2)
    rates = [recipe.rate(done) for done in (0.0, 0.1, 0.2, 0.6, 1.0)]
    assert rates == pytest.approx([0.0, 1.0, 2.0, 1.0, 0.0])


def test_the_model_fits_in_eight_megabytes_of_half_precision() -> None:
    with torch.device("meta"):
        model = Transformer(Recipe().transformer())
    assert 2 * sum(parameter.numel() for parameter in model.parameters()) < 7.9e6
