"""Packing: every token once, in its cell."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from export.packing import pack

_TEXTS = st.lists(st.lists(st.integers(0, 99), min_size=1, max_size=12), min_size=1, max_size=6)


@given(texts=_TEXTS)
def test_every_token_goes_to_its_cell_and_back(texts: list[list[int]]) -> None:
    packed = pack([np.array(text) for text in texts])
    assert packed["lengths"].tolist() == [len(text) for text in texts]
    for row, text in zip(packed["pad_map"], texts, strict=True):
        assert packed["input_ids"][row[: len(text)]].tolist() == text
        assert packed["positions"][row[: len(text)]].tolist() == list(range(len(text)))
        assert not row[len(text) :].any()
    cells = packed["pad_map"].reshape(-1)[packed["unpad_map"]]
    assert cells.tolist() == list(range(len(packed["input_ids"])))


def test_everything_is_int64() -> None:
    assert {array.dtype for array in pack([np.array([1, 2])]).values()} == {np.dtype(np.int64)}
