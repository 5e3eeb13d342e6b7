"""Heatmaps: tokens on both axes, markup escaped, and what cannot be written."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy as np
import pytest

from export.attention_map import AttentionError, AttentionMap
from export.heatmap import draw

_MAP = AttentionMap(
    title="decoder, layer 0, head 1",
    rows=("<b>", "sea"),
    columns=("the", " & ", "sea"),
    weights=np.array([[0.25, 0.5, 0.25], [0.0, 1.0, 0.0]], dtype=np.float32),
)


def test_a_page_needs_nothing_but_itself(tmp_path: Path) -> None:
    draw(_MAP, tmp_path / "map.html")
    page = (tmp_path / "map.html").read_text(encoding="utf-8")
    assert "<th>&lt;b&gt;</th>" in page
    assert "<th> &amp; </th>" in page
    weights = [float(each) for each in re.findall(r'title="([\d.]+)"', page)]
    assert weights == _MAP.weights.ravel().tolist()
    assert not re.search("src=|href=|@import|url", page)


def test_a_picture(tmp_path: Path) -> None:
    draw(_MAP, tmp_path / "map.png")
    assert (tmp_path / "map.png").read_bytes().startswith(b"\x89PNG")


def test_another_kind_of_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(AttentionError, match=r"map\.svg; it must end in \.png or \.html"):
        draw(_MAP, tmp_path / "map.svg")


def test_without_matplotlib_a_page_is_proposed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(AttentionError, match=r"needs matplotlib: .* or write a \.html"):
        draw(_MAP, tmp_path / "map.png")
