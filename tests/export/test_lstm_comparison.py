"""Parameters by part, beside an LSTM's."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console
from torch import nn

from export.lstm_comparison import compare_with_lstm, render_comparison
from export.parts import part_of
from model.config import TransformerConfig
from tests.checkpoints import DECODER, ENCODER, ENCODER_DECODER, LEARNED_DECODER, random_tensors


@pytest.mark.parametrize("config", [ENCODER, DECODER, LEARNED_DECODER, ENCODER_DECODER])
def test_every_parameter_is_counted_once(config: TransformerConfig) -> None:
    comparison = compare_with_lstm(config)
    tensors = random_tensors(config).values()
    assert sum(comparison.transformer.values()) == sum(tensor.numel() for tensor in tensors)
    assert "other" not in comparison.transformer

    lstm = nn.LSTM(config.d_model, config.d_model, num_layers=6)
    stacks = 2 if config is ENCODER_DECODER else 1
    recurrent = stacks * sum(parameter.numel() for parameter in lstm.parameters())
    shared = sum(comparison.transformer.get(part, 0) for part in ("embeddings", "output head"))
    assert sum(comparison.lstm.values()) == recurrent + shared


def test_the_table_has_both_columns() -> None:
    console = Console(width=120, record=True, file=StringIO())
    console.print(render_comparison(compare_with_lstm(DECODER)))
    lines = console.export_text().splitlines()
    assert any("transformer" in line and "6-layer LSTM of 64" in line for line in lines)
    (attention,) = [line for line in lines if "attention" in line]
    assert attention.split("│")[3].strip() == "-"


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("encoder.blocks.0.attention.query.weight", "attention"),
        ("decoder.blocks.0.cross_attention.key.bias", "cross-attention"),
        ("decoder.blocks.0.attention_residual.norm.weight", "norms"),
        ("encoder.embedding.norm.bias", "norms"),
        ("encoder.embedding.tokens.weight", "embeddings"),
        ("encoder.embedding.positions.table", "position tables"),
        ("rotary.cos", "position tables"),
        ("decoder.head.weight", "output head"),
        ("val_7", "other"),
    ],
)
def test_a_name_tells_the_part(name: str, part: str) -> None:
    assert part_of(name) == part
