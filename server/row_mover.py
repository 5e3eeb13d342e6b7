"""Copies positions between rows of caches, all layers at once."""

from __future__ import annotations

from typing import Any, Protocol

from server.artefact import Artefact
from server.buffer import HostBuffer, bind_input
from server.interface import MOVER_NUMBERS
from server.session import open_session
from server.slots import CacheSlots


class Rows(Protocol):
    """Keys and values that can be copied from."""

    def bind_source(self, binding: Any, name: str, row: int) -> None:
        """Binds one row as input `name.*`, only to be read."""


class RowMover:
    """The mover's session; to be used by one thread only.

    Raises:
        ArtefactError, DeviceError: as `open_session`.
    """

    def __init__(self, artefact: Artefact, device_index: int) -> None:
        self._session = open_session(artefact, "mover", device_index=device_index)
        self._binding = self._session.io_binding()
        self._numbers = {name: HostBuffer((1,), "int64") for name in MOVER_NUMBERS}

    def copy(
        self,
        source: Rows,
        source_row: int,
        destination: CacheSlots,
        destination_row: int,
        span: tuple[int, int, int],
    ) -> None:
        """Copies positions of one row; `span` is where they begin and end, and where they go."""
        for (name, buffer), number in zip(self._numbers.items(), span, strict=True):
            buffer.write([number])
            bind_input(self._binding, name, buffer, (1,))
        source.bind_source(self._binding, "source", source_row)
        destination.bind(self._binding, "destination", "moved", destination_row, 1)
        self._session.run_with_iobinding(self._binding)
