"""SIGTERM and Ctrl-C: the first asks to finish what has begun, the second not to wait for it."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any, TypeVar

_WATCHED = (signal.SIGTERM, signal.SIGINT)

Result = TypeVar("Result")


def hold_stop_signals() -> None:
    """Has signals that come from now on wait until `StopSignals` notes them.

    They wait in the kernel, so that they outlast even the process's replacing itself.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, _WATCHED)


class Stopped(Exception):
    """A signal has come before something was done."""


class StopSignals:
    """The signals that have come so far.

    Attributes:
        stop: set by the first.
        hurry: set by the second.
    """

    def __init__(self) -> None:
        self.stop = asyncio.Event()
        self.hurry = asyncio.Event()
        self._last: signal.Signals | None = None

    def install(self, loop: asyncio.AbstractEventLoop) -> None:
        """Has the loop note signals from now on, and those that were held."""
        for watched in _WATCHED:
            loop.add_signal_handler(watched, self.note, watched)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _WATCHED)

    def note(self, received: signal.Signals) -> None:
        """A signal has come."""
        if self.stop.is_set():
            self.hurry.set()
        self.stop.set()
        self._last = received

    async def or_stop(self, work: Coroutine[Any, Any, Result]) -> Result:
        """What comes of work, unless a signal comes first.

        Raises:
            Stopped: a signal has come; the work is cancelled.
        """
        if self.stop.is_set():
            work.close()
            raise Stopped
        working = asyncio.ensure_future(work)
        stopping = asyncio.ensure_future(self.stop.wait())
        try:
            await asyncio.wait((working, stopping), return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                raise Stopped
            return working.result()
        finally:
            working.cancel()
            stopping.cancel()

    @property
    def interrupted(self) -> bool:
        """Whether it was Ctrl-C that ended the patience."""
        return self.hurry.is_set() and self._last is signal.SIGINT
