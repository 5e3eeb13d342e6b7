"""The memory that this process can still take: what the machine has, and what its cgroups leave."""

from __future__ import annotations

from pathlib import Path

from server.limits import LimitError


def available_memory(root: Path = Path("/")) -> int:
    """Bytes that this process can still take: what the machine has, and what its cgroups leave.

    Files that the kernel could drop count as free. `root` is where /proc and /sys are.
    """
    groups = _cgroup_directories(root)
    left = [room for group in groups if (room := _cgroup_room(group)) is not None]
    return max(0, min([_machine_room(root), *left]))


def _machine_room(root: Path) -> int:
    for line in (root / "proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    raise LimitError("the memory of this machine is unknown; give --cache-bytes")


def _cgroup_directories(root: Path) -> list[Path]:
    """The cgroup (version 2) of this process and its ancestors: each can limit it."""
    top = root / "sys/fs/cgroup"
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return []
    inner = next((line[3:].strip("/") for line in lines if line.startswith("0::")), "")
    group = top / inner
    return [group, *(parent for parent in group.parents if parent.is_relative_to(top))]


def _cgroup_room(group: Path) -> int | None:
    """What a cgroup leaves; None where it sets no limit."""
    try:
        limit = (group / "memory.max").read_text().strip()
        if limit == "max":
            return None
        used = int((group / "memory.current").read_text())
        statistics = (group / "memory.stat").read_text().splitlines()
    except OSError:
        return None
    cached = next((int(line.split()[1]) for line in statistics if "inactive_file" in line), 0)
    return int(limit) - used + cached
