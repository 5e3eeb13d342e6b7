"""Texts of several lengths as the inputs of the padding-free encoder graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int64]

PACKED_INPUTS = ("input_ids", "positions", "pad_map", "unpad_map", "lengths")
MEMORY_MAP = "memory_map"  # of an encoder-decoder's encoder


def pack(texts: Sequence[Ids]) -> dict[str, Ids]:
    """The graph's inputs for some texts, each at least one id long.

    `N` is the tokens of all texts, `L` those of the longest, `B` the texts.

    Returns:
        `input_ids [N]`, `positions [N]`, `pad_map [B, L]`, `unpad_map [N]`, `lengths [B]`.
    """
    lengths = np.array([len(text) for text in texts], dtype=np.int64)
    columns = np.arange(lengths.max())
    real = columns < lengths[:, None]  # [B, L]
    pad_map = np.zeros(real.shape, dtype=np.int64)
    pad_map[real] = np.arange(lengths.sum())
    return {
        "input_ids": np.concatenate(texts),
        "positions": np.broadcast_to(columns, real.shape)[real].astype(np.int64),
        "pad_map": pad_map,
        "unpad_map": np.flatnonzero(real).astype(np.int64),
        "lengths": lengths,
    }


def with_memory(packed: Mapping[str, Ids]) -> dict[str, Ids]:
    """The inputs of an encoder-decoder's encoder, whose sources a decoder is to read."""
    return {**packed, MEMORY_MAP: packed["pad_map"]}


def without_memory(packed: Mapping[str, Ids]) -> dict[str, Ids]:
    """The inputs of an encoder-decoder's encoder, of which the embeddings alone are wanted."""
    return {**packed, MEMORY_MAP: np.zeros((0, 0), dtype=np.int64)}
