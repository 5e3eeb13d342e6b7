"""The feed-forward network and the normalisations."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from model.config import Activation, Norm
from model.feed_forward import FeedForward, make_norm
from tests.checkpoints import DECODER, ENCODER

REFERENCES = {
    Activation.GELU: nn.GELU(),
    Activation.GELU_TANH: nn.GELU(approximate="tanh"),
    Activation.RELU: nn.ReLU(),
    Activation.SILU: nn.SiLU(),
}


@pytest.mark.parametrize("activation", list(Activation))
def test_plain(activation: Activation) -> None:
    network = FeedForward(replace(ENCODER, activation=activation))
    hidden = torch.randn(2, 3, ENCODER.d_model)
    reference = nn.Sequential(network.up, REFERENCES[activation], network.down)
    torch.testing.assert_close(network(hidden), reference(hidden))


def test_gated() -> None:
    network = FeedForward(DECODER)
    hidden = torch.randn(2, 3, DECODER.d_model)
    assert network.gate is not None
    gate = network.gate(hidden)
    expected = network.down(gate * gate.sigmoid() * network.up(hidden))
    torch.testing.assert_close(network(hidden), expected)
    assert {name for name, _ in network.named_parameters()} == {
        "gate.weight",
        "up.weight",
        "down.weight",
    }


def test_layer_norm_is_per_token() -> None:
    norm = make_norm(ENCODER)
    hidden = torch.randn(2, 5, ENCODER.d_model)
    mean = hidden.mean(dim=-1, keepdim=True)
    variance = hidden.var(dim=-1, keepdim=True, unbiased=False)
    expected = (hidden - mean) / (variance + ENCODER.norm_eps).sqrt()
    torch.testing.assert_close(norm(hidden), expected)
    torch.testing.assert_close(norm(hidden)[1, 3], norm(hidden[1, 3]))


def test_rms_norm_leaves_the_mean_alone() -> None:
    norm = make_norm(replace(DECODER, norm=Norm.RMS, norm_eps=1e-3))
    hidden = torch.randn(2, 5, DECODER.d_model) + 3.0
    size = (hidden.square().mean(dim=-1, keepdim=True) + 1e-3).sqrt()
    torch.testing.assert_close(norm(hidden), hidden / size)


def test_dropout_in_training_only() -> None:
    network = FeedForward(replace(ENCODER, dropout=0.5))
    hidden = torch.randn(2, 3, ENCODER.d_model)
    assert not torch.equal(network.train()(hidden), network(hidden))
    assert torch.equal(network.eval()(hidden), network(hidden))
