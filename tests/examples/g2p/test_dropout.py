"""Dropout with a byte an element, beside what PyTorch's own promises."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from examples.g2p.dropout import ByteDropout, replace_dropout


@pytest.mark.parametrize("shape", [(100, 1000), (1, 7), (3, 5, 11)])
def test_shape_and_type_stay(shape: tuple[int, ...]) -> None:
    states = torch.ones(shape, dtype=torch.bfloat16)
    dropped = ByteDropout(0.1)(states)
    assert dropped.shape == states.shape
    assert dropped.dtype == states.dtype


@pytest.mark.parametrize("share", [0.1, 0.5])
def test_the_share_is_dropped_and_the_mean_kept(share: float) -> None:
    torch.manual_seed(0)
    states = torch.ones(1000, 1000)
    dropped = ByteDropout(share)(states)
    assert float((dropped == 0).float().mean()) == pytest.approx(share, abs=0.004)
    assert float(dropped.mean()) == pytest.approx(1.0, abs=0.003)
    zeros = (dropped == 0).flatten()
    together = float((zeros[1:] & zeros[:-1]).float().mean())  # neighbours share a drawn number
    assert together == pytest.approx(share**2, abs=0.004)


def test_gradients_flow_through_what_is_kept() -> None:
    states = torch.ones(1000, requires_grad=True)
    dropped = ByteDropout(0.25)(states)
    dropped.sum().backward()
    assert states.grad is not None
    assert torch.equal(states.grad, dropped.detach())


def test_nothing_is_dropped_outside_of_training_or_with_no_share() -> None:
    states = torch.randn(100)
    assert torch.equal(ByteDropout(0.5).eval()(states), states)
    assert torch.equal(ByteDropout(0.0)(states), states)


def test_every_dropout_of_a_model_is_replaced() -> None:
    model = nn.Sequential(nn.Dropout(0.1), nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.2)))
    replace_dropout(model)
    replaced = [module for module in model.modules() if isinstance(module, nn.Dropout)]
    assert [(type(module), module.p) for module in replaced] == [
        (ByteDropout, 0.1),
        (ByteDropout, 0.2),
    ]
