"""Transparent huge pages for what the process allocates.

A decode step reads every weight once, so it runs at the speed of memory, and with pages of 4 KiB a
good part of that goes into translating addresses (docs/benchmarks.md has the figures). glibc asks
the kernel for huge pages where `GLIBC_TUNABLES` says so when a process starts, and at no other
time: a process that was started without it replaces itself once.
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Mapping

_VARIABLE = "GLIBC_TUNABLES"
_TUNABLE = "glibc.malloc.hugetlb"


def use_huge_pages() -> None:
    """Starts this very command anew with huge pages; returns where that is done or cannot be."""
    if sys.platform == "linux" and platform.libc_ver()[0] == "glibc" and sys.executable:
        environment = with_huge_pages(os.environ)
        if environment != dict(os.environ):
            os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], environment)


def with_huge_pages(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment with the tunable set; one that sets it either way is left as it is."""
    tunables = environment.get(_VARIABLE, "")
    if _TUNABLE in tunables:
        return dict(environment)
    asked = f"{tunables}:{_TUNABLE}=1" if tunables else f"{_TUNABLE}=1"
    return {**environment, _VARIABLE: asked}
