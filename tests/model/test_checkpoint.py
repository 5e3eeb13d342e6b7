"""A checkpoint and the model that it builds."""

from dataclasses import replace

import pytest
import torch

from model.checkpoint import CheckpointError
from tests.checkpoints import DECODER, ENCODER_DECODER, tiny_checkpoint


def test_the_model_has_the_tensors() -> None:
    checkpoint = tiny_checkpoint(ENCODER_DECODER)
    model = checkpoint.build()
    assert not model.training
    state = model.state_dict()
    assert all(torch.equal(state[name], tensor) for name, tensor in checkpoint.tensors.items())
    assert torch.equal(
        state["decoder.embedding.tokens.weight"], state["encoder.embedding.tokens.weight"]
    )


def test_every_problem_is_listed() -> None:
    checkpoint = tiny_checkpoint(DECODER)
    tensors = dict(checkpoint.tensors)
    del tensors["decoder.norm.weight"]
    tensors["decoder.blocks.0.attention.query.weight"] = torch.zeros(3, 4)
    tensors["decoder.head.bias"] = torch.zeros(3)
    tensors["decoder.blocks.0.attention.key.weight"] = torch.ones(32, 64, dtype=torch.int64)
    with pytest.raises(CheckpointError) as refusal:
        replace(checkpoint, tensors=tensors).build()
    message = str(refusal.value)
    assert "decoder.blocks.0.attention.key.weight is of type torch.int64" in message
    assert "missing decoder.norm.weight" in message
    assert "unexpected decoder.head.bias" in message
    assert "query.weight has shape [3, 4] instead of [64, 64]" in message


def test_nothing_is_allocated_before_the_shapes_are_right() -> None:
    # 64 TiB of an embedding: only a checkpoint that holds as much may ask for it.
    config = replace(DECODER, vocab_size=1 << 24, d_model=1 << 20)
    with pytest.raises(CheckpointError, match=r"tokens.weight has shape .* \[16777216, 1048576\]"):
        replace(tiny_checkpoint(DECODER), config=config).build()
