"""Files that may be replaced while the server runs."""

from __future__ import annotations

from pathlib import Path

_Stamp = tuple[int, int, int]  # time of the last change, size, inode


class WatchedFiles:
    """Tells whether any of some files has changed since it was last asked.

    Looking costs microseconds, so that every call can afford it. Links are followed: Kubernetes
    replaces the files of a secret by turning a link.
    """

    def __init__(self, *paths: Path) -> None:
        self._paths = paths
        self._stamps = self._look()

    def changed(self) -> bool:
        """Whether any has; then what they are now is what the next call compares with."""
        before, self._stamps = self._stamps, self._look()
        return before != self._stamps

    def _look(self) -> list[_Stamp | None]:
        return [_stamp(path) for path in self._paths]


def _stamp(path: Path) -> _Stamp | None:
    """None while there is no such file."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
