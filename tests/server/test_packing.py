"""Packing: the maps lead from tokens to cells and back, for any texts."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from server.packing import pack

TEXTS = st.lists(st.lists(st.integers(0, 1000), min_size=1, max_size=20), min_size=1, max_size=8)


def test_two_texts() -> None:
    packed = pack([(7, 8, 9), (5,)])
    assert {name: value.tolist() for name, value in packed.feeds().items()} == {
        "input_ids": [7, 8, 9, 5],
        "positions": [0, 1, 2, 0],
        "pad_map": [[0, 1, 2], [3, 0, 0]],
        "unpad_map": [0, 1, 2, 3],
        "lengths": [3, 1],
    }


@given(TEXTS)
def test_the_padded_view_holds_each_text_in_its_row(texts: list[list[int]]) -> None:
    packed = pack(texts)
    padded = packed.input_ids[packed.pad_map]  # [B, L]
    for row, text in enumerate(texts):
        assert padded[row, : len(text)].tolist() == text
        assert packed.lengths[row] == len(text)
    assert padded.shape[1] == max(map(len, texts))


@given(TEXTS)
def test_unpadding_undoes_padding(texts: list[list[int]]) -> None:
    packed = pack(texts)
    tokens = np.arange(len(packed.input_ids))
    assert (packed.pad_map.reshape(-1)[packed.unpad_map] == tokens).all()
    padding = np.ones(packed.pad_map.size, dtype=bool)
    padding[packed.unpad_map] = False
    assert (packed.pad_map.reshape(-1)[padding] == 0).all()


@given(TEXTS)
def test_positions_count_within_each_text(texts: list[list[int]]) -> None:
    packed = pack(texts)
    assert packed.positions.tolist() == [
        position for text in texts for position in range(len(text))
    ]
    assert all(value.dtype == np.int64 for value in packed.feeds().values())
