"""Huge pages: asked for once, never against what the environment says."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from server.huge_pages import with_huge_pages

_ROOT = Path(__file__).resolve().parents[2]
_THRESHOLDS = "glibc.malloc.mmap_threshold=33554432:glibc.malloc.trim_threshold=67108864"
_ALL = f"glibc.malloc.hugetlb=1:glibc.malloc.arena_max=1:{_THRESHOLDS}"


def _transparent_huge_pages() -> str:
    try:
        return Path("/sys/kernel/mm/transparent_hugepage/enabled").read_text()
    except OSError:
        return "[never]"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, _ALL),
        (
            "glibc.malloc.arena_max=2",
            f"glibc.malloc.arena_max=2:glibc.malloc.hugetlb=1:{_THRESHOLDS}",
        ),
        ("glibc.malloc.hugetlb=0", "glibc.malloc.hugetlb=0"),
    ],
)
def test_the_tunables_are_added_to_what_is_there(before: str | None, after: str) -> None:
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
    assert last == f"{_ALL} ['--slots', '4']"


@pytest.mark.skipif("[never]" in _transparent_huge_pages(), reason="the kernel gives none")
def test_blocks_of_a_thread_lie_in_whole_huge_pages() -> None:
    """As the weights of a model are: many blocks of an odd size between one and four MiB."""
    program = """
import threading, numpy as np

def allocate():
    global blocks
    blocks = [np.ones(3_400_000, np.uint8) for _ in range(20)]

thread = threading.Thread(target=allocate)
thread.start()
thread.join()
print(next(line.split()[1] for line in open("/proc/self/smaps_rollup") if "AnonHuge" in line))
"""
    result = subprocess.run(
        [sys.executable, "-c", program],
        env=with_huge_pages({}),
        capture_output=True,
        text=True,
        check=True,
    )
    assert int(result.stdout) * 1024 > 0.9 * 20 * 3_400_000
