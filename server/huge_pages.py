"""Transparent huge pages for what the process allocates.

A decode step reads every weight once, so it runs at the speed of memory, and with pages of 4 KiB a
good part of that goes into translating addresses (docs/benchmarks.md has the figures). glibc asks
the kernel for huge pages where `GLIBC_TUNABLES` says so when a process starts, and at no other
time: a process that was started without it replaces itself once.

A huge page is 2 MiB, so it takes more than asking. By default glibc maps each block of more than
128 KiB by itself, at any address: of a model whose weights are matrices of 1 to 4 MiB, less than
half lies in whole huge pages. And a thread gets an arena of its own, which grows by pieces that are
never huge. So there is one arena, and what is smaller than 32 MiB lies in it side by side.
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Mapping

HUGE_PAGES_VARIABLE = "GLIBC_TUNABLES"
_HUGE_PAGES = "glibc.malloc.hugetlb"
_TUNABLES = {
    _HUGE_PAGES: 1,
    "glibc.malloc.arena_max": 1,
    # Where glibc's own adjustment of these two ends at the latest, once blocks are freed.
    "glibc.malloc.mmap_threshold": 32 << 20,
    "glibc.malloc.trim_threshold": 64 << 20,
}


def use_huge_pages() -> None:
    """Starts this very command anew with huge pages; returns where that is done or cannot be."""
    if sys.platform == "linux" and platform.libc_ver()[0] == "glibc" and sys.executable:
        environment = with_huge_pages(os.environ)
        if environment != dict(os.environ):
            os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], environment)


def with_huge_pages(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment with the tunables set; one that says it wants huge pages or none stays."""
    set_already = environment.get(HUGE_PAGES_VARIABLE, "")
    if _HUGE_PAGES in set_already:
        return dict(environment)
    added = [f"{name}={value}" for name, value in _TUNABLES.items() if name not in set_already]
    return {**environment, HUGE_PAGES_VARIABLE: ":".join([*filter(None, [set_already]), *added])}
