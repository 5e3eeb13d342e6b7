"""A transformer's parameters beside those of an LSTM of the same width, part by part."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import torch
from rich.table import Table
from torch import nn

from export.parts import count_by_part
from model.config import TransformerConfig
from model.transformer import Transformer

LAYERS = 6
_SHARED = ("embeddings", "output head")


@dataclass(frozen=True)
class LstmComparison:
    """Parameters by part; a tied head counts as the embedding that it is.

    Attributes:
        transformer, lstm: part -> parameters.
    """

    hidden: int
    transformer: dict[str, int]
    lstm: dict[str, int]

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"layers": LAYERS}


def compare_with_lstm(config: TransformerConfig) -> LstmComparison:
    """Both are built on no device, so nothing is allocated.

    The LSTM (Hochreiter and Schmidhuber 1997, as PyTorch has it: two biases a gate) has the same
    embeddings, the same head and six layers of the same width; an encoder-decoder's has them twice.
    """
    with torch.device("meta"):
        transformer = Transformer(config)
        lstm = nn.LSTM(config.d_model, config.d_model, LAYERS)
    stacks = config.has_encoder + config.has_decoder
    counts = count_by_part((name, each.numel()) for name, each in transformer.named_parameters())
    same = {part: count for part, count in counts.items() if part in _SHARED}
    gates = {"weight_ih": "input to gates", "weight_hh": "state to gates", "bias": "gate biases"}
    for start, part in gates.items():
        numbers = (each.numel() for name, each in lstm.named_parameters() if name.startswith(start))
        same[part] = stacks * sum(numbers)
    return LstmComparison(config.d_model, counts, same)


def render_comparison(comparison: LstmComparison) -> Table:
    """A table for a terminal."""
    table = Table(title="parameters beside a recurrent network's", title_justify="left")
    table.add_column("part")
    for column in ("transformer", f"{LAYERS}-layer LSTM of {comparison.hidden}"):
        table.add_column(column, justify="right")
    sides = (comparison.transformer, comparison.lstm)
    for part in dict.fromkeys((*comparison.transformer, *comparison.lstm)):
        table.add_row(part, *(f"{side[part]:,}" if part in side else "-" for side in sides))
    table.add_row("all", *(f"{sum(side.values()):,}" for side in sides))
    return table
