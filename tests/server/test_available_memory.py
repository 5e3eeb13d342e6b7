"""What memory there is, as the machine and its cgroups tell."""

from __future__ import annotations

from pathlib import Path

from server.available_memory import available_memory

MEBIBYTE = 1 << 20


def test_available_memory_is_the_machines_where_no_cgroup_limits(tmp_path: Path) -> None:
    _write(tmp_path / "proc/meminfo", "MemTotal: 9000 kB\nMemAvailable: 1000 kB\n")
    assert available_memory(tmp_path) == 1000 * 1024


def test_available_memory_is_the_least_that_any_cgroup_leaves(tmp_path: Path) -> None:
    _write(tmp_path / "proc/meminfo", "MemAvailable: 1000 kB\n")
    _write(tmp_path / "proc/self/cgroup", "0::/pod/container\n")
    pod = tmp_path / "sys/fs/cgroup/pod"
    _write_group(pod, limit="90000", used=80000, inactive_file=5000)
    _write_group(pod / "container", limit="max", used=1, inactive_file=0)
    assert available_memory(tmp_path) == 15000


def test_available_memory_is_never_negative(tmp_path: Path) -> None:
    _write(tmp_path / "proc/meminfo", "MemAvailable: 1000 kB\n")
    _write(tmp_path / "proc/self/cgroup", "0::/\n")
    _write_group(tmp_path / "sys/fs/cgroup", limit="100", used=300, inactive_file=10)
    assert available_memory(tmp_path) == 0


def test_available_memory_of_this_machine_is_positive() -> None:
    assert available_memory() > MEBIBYTE


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def _write_group(group: Path, *, limit: str, used: int, inactive_file: int) -> None:
    _write(group / "memory.max", limit)
    _write(group / "memory.current", str(used))
    _write(group / "memory.stat", f"anon 1\ninactive_file {inactive_file}\n")
