"""A session that several engines use: opened once, by whichever needs it first."""

from __future__ import annotations

import threading
from typing import Any

from server.artefact import Artefact
from server.session import open_session


class SharedSession:
    """A graph of an artefact whose weights are in memory once, however many engines run it.

    ONNX Runtime lets several threads run one session at the same time; a binding is of one thread.

    Args:
        role, device_index, threads: as for `open_session`.
    """

    def __init__(
        self, artefact: Artefact, role: str, *, device_index: int = 0, threads: int = 1
    ) -> None:
        self._artefact = artefact
        self._role = role
        self._device_index = device_index
        self._threads = threads
        self._opening = threading.Lock()
        self._session: Any = None

    def open(self) -> Any:
        """The session; the first call opens it, and others wait for that.

        Raises:
            ArtefactError, DeviceError: as `open_session`.
        """
        with self._opening:
            if self._session is None:
                self._session = open_session(
                    self._artefact,
                    self._role,
                    device_index=self._device_index,
                    threads=self._threads,
                )
            return self._session
