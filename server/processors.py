"""How many processors this process may use."""

from __future__ import annotations

import math
import os
from pathlib import Path

_CGROUP = Path("/sys/fs/cgroup")


def usable_processors(cgroup: Path = _CGROUP) -> int:
    """The processors that the scheduler grants: the container's quota, rounded up, where there is
    one, and never more than the process may run on."""
    allowed = len(os.sched_getaffinity(0))
    quota = _quota(cgroup)
    return allowed if quota is None else max(1, min(allowed, math.ceil(quota)))


def _quota(cgroup: Path) -> float | None:
    """Processors granted by cgroup v2 (`cpu.max`) or v1 (`cpu.cfs_*`); None without a quota."""
    if (unified := _read(cgroup / "cpu.max")) is not None:
        quota, period = unified.split()
        return None if quota == "max" else int(quota) / int(period)
    quota_us = _read(cgroup / "cpu" / "cpu.cfs_quota_us")
    period_us = _read(cgroup / "cpu" / "cpu.cfs_period_us")
    if quota_us is None or period_us is None or int(quota_us) <= 0:
        return None
    return int(quota_us) / int(period_us)


def _read(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except OSError:
        return None
