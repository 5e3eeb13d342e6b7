"""The parts of a transformer, told from the names of its parameters."""

from __future__ import annotations

import pytest

from export.parts import count_by_part, part_of
from model.config import TransformerConfig
from tests.checkpoints import ENCODER_DECODER, RELATIVE_ENCODER_DECODER, random_tensors


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("decoder.blocks.0.attention.query.weight", "attention"),
        ("decoder.blocks.0.cross_attention.key.bias", "cross-attention"),
        ("decoder.blocks.0.cross_attention_residual.norm.weight", "norms"),
        ("decoder.relative_bias.table", "position tables"),
        ("encoder.embedding.positions.table", "position tables"),
        ("encoder.embedding.tokens.weight", "embeddings"),
        ("decoder.head.bias", "output head"),
        ("anything.else", "other"),
    ],
)
def test_a_name_says_its_part(name: str, part: str) -> None:
    assert part_of(name) == part


@pytest.mark.parametrize("config", [ENCODER_DECODER, RELATIVE_ENCODER_DECODER])
def test_every_parameter_of_an_encoder_decoder_has_a_part(config: TransformerConfig) -> None:
    sizes = [(name, tensor.numel()) for name, tensor in random_tensors(config).items()]
    counts = count_by_part(sizes)
    assert "other" not in counts
    assert sum(counts.values()) == sum(size for _, size in sizes)
