"""Huge pages: asked for once, never against what the environment says."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from server.huge_pages import with_huge_pages

_ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, "glibc.malloc.hugetlb=1"),
        ("glibc.malloc.arena_max=2", "glibc.malloc.arena_max=2:glibc.malloc.hugetlb=1"),
        ("glibc.malloc.hugetlb=0", "glibc.malloc.hugetlb=0"),
    ],
)
def test_the_tunable_is_added_to_what_is_there(before: str | None, after: str) -> None:
    environment = {"HOME": "/"} if before is None else {"HOME": "/", "GLIBC_TUNABLES": before}
    assert with_huge_pages(environment) == {"HOME": "/", "GLIBC_TUNABLES": after}


@pytest.mark.skipif(sys.platform != "linux", reason="the tunable is glibc's")
def test_a_process_replaces_itself_once_and_keeps_its_arguments() -> None:
    program = (
        "import os, sys; from server.huge_pages import use_huge_pages; print('start', os.getpid());"
        "sys.stdout.flush(); use_huge_pages(); print(os.environ['GLIBC_TUNABLES'], sys.argv[1:])"
    )
    environment = {key: value for key, value in os.environ.items() if key != "GLIBC_TUNABLES"}
    result = subprocess.run(
        [sys.executable, "-c", program, "--slots", "4"],
        cwd=_ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    first, second, last = result.stdout.splitlines()
    assert first == second  # one process all along
    assert last == "glibc.malloc.hugetlb=1 ['--slots', '4']"
