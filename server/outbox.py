"""Events on their way from an engine's thread to the event loop: one hop a step, not one each."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import structlog

from server.request import Ticket

_log = structlog.get_logger()
_Letter = tuple[Ticket, Callable[[Any], None], Any]


class Outbox:
    """Collects the events of one step and delivers them together, in order."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._letters: list[_Letter] = []

    def add(self, ticket: Ticket, deliver: Callable[[Any], None], event: object) -> None:
        """Adds an event; it is dropped if its request is cancelled before it arrives."""
        self._letters.append((ticket, deliver, event))

    def flush(self) -> None:
        """Sends what was collected to the loop; nobody is left to tell where that is closed."""
        if not self._letters:
            return
        letters, self._letters = self._letters, []
        try:
            self._loop.call_soon_threadsafe(_deliver, letters)
        except RuntimeError:
            _log.warning("events dropped: the event loop is closed", events=len(letters))


def _deliver(letters: list[_Letter]) -> None:
    for ticket, deliver, event in letters:
        if ticket.cancelled:
            continue
        try:
            deliver(event)
        except Exception:  # one receiver's fault is not its neighbours'
            _log.exception("an event could not be delivered")
