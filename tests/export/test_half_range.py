"""Layers that leave the range of fp16 are found, by their names."""

from __future__ import annotations

import pytest
import torch

from export.half_range import check_half_range
from model.generate import logits
from tests.checkpoints import DECODER, tiny_checkpoint

IDS = torch.arange(20)[None]


def test_a_model_within_the_range_passes() -> None:
    model = tiny_checkpoint(DECODER).build()
    (check,) = check_half_range(model, lambda: logits(model, IDS))
    assert check.passed
    assert "goes furthest" in check.note


@pytest.mark.parametrize("value", [1e6, float("nan")])
def test_layers_beyond_it_are_named(value: float) -> None:
    model = tiny_checkpoint(DECODER).build()
    with torch.no_grad():
        model.get_parameter("decoder.blocks.1.feed_forward.up.weight").mul_(value)
    checks = list(check_half_range(model, lambda: logits(model, IDS)))
    assert checks
    assert not any(check.passed for check in checks)
    named = {check.shape for check in checks}
    assert "decoder.blocks.1.feed_forward.up" in named
    assert not any("blocks.0" in name for name in named)


def test_nothing_stays_behind_in_the_model() -> None:
    model = tiny_checkpoint(DECODER).build()
    list(check_half_range(model, lambda: logits(model, IDS)))
    assert not any(module._forward_hooks for module in model.modules())
