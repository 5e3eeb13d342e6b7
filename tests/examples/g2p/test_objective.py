"""The objective, beside one pair at a time."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from examples.g2p.batches import Batch, Pair
from examples.g2p.objective import surprise
from model.generate import logits, remember
from model.transformer import Transformer
from tests.checkpoints import random_tensors
from tests.examples.g2p.words import TINY

PAIRS = [
    Pair((0, 5, 7, 9, 1), (0, 3, 4, 1)),
    Pair((0, 6, 1), (0, 9, 8, 7, 6, 1)),
    Pair((0, 1), (0, 1)),
]


def random_model() -> Transformer:
    config = TINY.transformer()
    model = Transformer(config)
    model.load_state_dict(random_tensors(config), strict=False)
    return model.eval()


def pair_surprise(model: Transformer, pair: Pair, label_smoothing: float) -> Tensor:
    """Of each label of one pair, without padding, by the definition."""
    source = remember(model, torch.tensor([pair.source]), torch.tensor([len(pair.source)]))
    scores, _ = logits(model, torch.tensor([pair.target[:-1]]), None, source)
    lost = -scores[0].log_softmax(dim=-1)  # [S, vocabulary]
    right = lost[range(len(lost)), pair.target[1:]]
    return (1 - label_smoothing) * right + label_smoothing * lost.mean(dim=-1)


@pytest.mark.parametrize("label_smoothing", [0.0, 0.1])
def test_padding_and_company_do_not_count(label_smoothing: float) -> None:
    model = random_model()
    expected = torch.cat([pair_surprise(model, pair, label_smoothing) for pair in PAIRS]).mean()
    with torch.inference_mode():
        result = surprise(model, Batch.of(PAIRS), label_smoothing)
    torch.testing.assert_close(result, expected)


def test_dropout_is_for_training_and_reaches_attention() -> None:
    model, batch = random_model(), Batch.of(PAIRS)
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0  # what is left is in attention
    with torch.inference_mode():
        assert torch.equal(surprise(model, batch), surprise(model, batch))
        model.train()
        assert not torch.equal(surprise(model, batch), surprise(model, batch))
