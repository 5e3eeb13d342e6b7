"""Becomes another program the way that a container's first process is started.

    unshare --net --mount python enclosure.py UID ENVIRONMENT COMMAND ARGUMENT...

Only a loopback, nothing that can be written, no privileges, and only the environment that is given,
as JSON.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import stat
import struct
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

_SIOCSIFFLAGS, _IFF_UP = 0x8914, 0x1
_NOT_FILES = ("/dev", "/proc", "/sys")
_CHECKOUT = Path(__file__).resolve().parents[2]
_HELD = Path("/mnt")


def raise_loopback() -> None:
    """A new network namespace has one, which is down."""
    with socket.socket() as any_socket:
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", _IFF_UP))


def show(directories: Sequence[Path]) -> None:
    """Lets others reach directories that lie where only root may go, such as in its home.

    Whatever else lies there is covered, in this mount namespace.
    """
    closed = {at for each in directories for at in each.parents if not _open_to_others(at)}
    mount("-t", "tmpfs", "tmpfs", _HELD)
    for number, directory in enumerate(directories):
        (_HELD / str(number)).mkdir()
        mount("--bind", directory, _HELD / str(number))
    for directory in closed:
        if closed.isdisjoint(directory.parents):
            mount("-t", "tmpfs", "-o", "mode=755", "tmpfs", directory)
    for number, directory in enumerate(directories):
        if not directory.exists():
            directory.mkdir(parents=True)
            mount("--bind", _HELD / str(number), directory)


def make_read_only() -> None:
    """Remounts every file system, in this mount namespace alone."""
    with open("/proc/self/mounts") as mounts:
        points = [line.split()[1] for line in mounts]
    for point in points:
        covered = not os.path.exists(point)
        if not covered and not point.startswith(_NOT_FILES):
            mount("-o", "remount,bind,ro", point)


def drop_privileges(uid: int) -> None:
    """For good: no group, no capability, and no way to get any."""
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    for directory in ("/tmp", os.getcwd(), "/"):
        assert not os.access(directory, os.W_OK), f"{directory} can be written"


def mount(*arguments: str | Path) -> None:
    """Runs `mount`, which says on stderr why it cannot."""
    subprocess.run(["mount", *map(str, arguments)], check=True)


def _open_to_others(directory: Path) -> bool:
    return bool(directory.stat().st_mode & stat.S_IXOTH)


if __name__ == "__main__":
    uid, environment, *command = sys.argv[1:]
    raise_loopback()
    show([Path(sys.base_prefix), _CHECKOUT])
    make_read_only()
    drop_privileges(int(uid))
    os.execvpe(command[0], command, json.loads(environment))
