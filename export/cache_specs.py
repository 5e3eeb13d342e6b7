"""Keys and values of all layers as inputs and outputs of graphs."""

from __future__ import annotations

from export.manifest import TensorSpec
from model.config import TransformerConfig

HALVES = ("key", "value")


def cache_specs(
    config: TransformerConfig, part: str, number: str, rows: int | str, positions: str
) -> tuple[TensorSpec, ...]:
    """`{part}.{layer}.key|value [rows, G, positions, D]` of each layer of the decoder.

    Args:
        number: the dtype, as numpy spells it.
        positions: the name of the axis of tokens.
    """
    shape = (rows, config.kv_heads, positions, config.head_dim)
    return tuple(
        TensorSpec(f"{part}.{layer}.{half}", number, shape)
        for layer in range(config.decoder_layers)
        for half in HALVES
    )
