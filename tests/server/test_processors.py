"""The container's quota bounds the processors, in both spellings of the kernel."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from server.processors import usable_processors


@pytest.fixture(autouse=True)
def eight_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))


@pytest.mark.parametrize(
    ("content", "wanted"),
    [("200000 100000", 2), ("150000 100000", 2), ("1000 100000", 1), ("max 100000", 8)],
)
def test_unified_quota(tmp_path: Path, content: str, wanted: int) -> None:
    (tmp_path / "cpu.max").write_text(content + "\n")
    assert usable_processors(tmp_path) == wanted


@pytest.mark.parametrize(("quota", "wanted"), [("300000", 3), ("-1", 8), ("1600000", 8)])
def test_old_quota(tmp_path: Path, quota: str, wanted: int) -> None:
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu" / "cpu.cfs_quota_us").write_text(quota)
    (tmp_path / "cpu" / "cpu.cfs_period_us").write_text("100000")
    assert usable_processors(tmp_path) == wanted


def test_without_a_quota_all_that_the_process_may_run_on(tmp_path: Path) -> None:
    assert usable_processors(tmp_path) == 8
