"""Texts of a batch on one axis of tokens, with the maps to and from a padded view.

Shapes: `N` tokens of all texts, `B` texts, `L` tokens of the longest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from server.interface import MEMORY_MAP

Integers = NDArray[np.int64]
NO_MEMORY: Integers = np.zeros((0, 0), dtype=np.int64)


@dataclass(frozen=True)
class Packed:
    """The inputs of the encoder's graph, all int64.

    Attributes:
        input_ids: `[N]`, the texts one after another.
        positions: `[N]`, from 0 within each text.
        pad_map: `[B, L]`, the token of each cell; padding cells hold 0.
        unpad_map: `[N]`, the cell (row x L + column) of each token.
        lengths: `[B]`, tokens of each text.
    """

    input_ids: Integers
    positions: Integers
    pad_map: Integers
    unpad_map: Integers
    lengths: Integers

    def feeds(self, memory_map: Integers | None = None) -> dict[str, Integers]:
        """The inputs by the names that the graph gives them.

        Args:
            memory_map: of an encoder-decoder: `pad_map` for what its decoder reads, or `NO_MEMORY`.
        """
        return vars(self) | ({} if memory_map is None else {MEMORY_MAP: memory_map})


def pack(texts: Sequence[Sequence[int]]) -> Packed:
    """Packs at least one text of at least one id each."""
    lengths = np.array([len(text) for text in texts], dtype=np.int64)  # [B]
    rows = np.repeat(np.arange(len(texts)), lengths)  # [N]
    starts = np.cumsum(lengths) - lengths  # [B]
    tokens = np.arange(len(rows))  # [N]
    positions = tokens - starts[rows]  # [N]
    pad_map = np.zeros((len(texts), lengths.max()), dtype=np.int64)  # [B, L]
    pad_map[rows, positions] = tokens
    return Packed(
        input_ids=np.concatenate([np.asarray(text, dtype=np.int64) for text in texts]),
        positions=positions,
        pad_map=pad_map,
        unpad_map=rows * pad_map.shape[1] + positions,
        lengths=lengths,
    )
