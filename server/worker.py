"""Work that would hold up the event loop, such as tokenising a long text."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from google.protobuf.message import Message
from prometheus_client import Histogram

Result = TypeVar("Result")

_SMALL_BYTES = 2048  # tokenised in about a millisecond
_LARGE_BYTES = 1 << 18  # tokenised in up to a second


class Worker:
    """A few threads beside the event loop, and one for the largest messages.

    Those may take many seconds each; others do not wait behind them.
    """

    def __init__(self, threads: int = 2) -> None:
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="worker")
        self._patient = ThreadPoolExecutor(1, thread_name_prefix="patient-worker")

    async def convert(
        self,
        message: Message,
        conversion: Callable[[], Result],
        duration: Histogram,
        *,
        heavy: bool = False,
    ) -> tuple[Result, float]:
        """Runs the conversion of a message, right here if it is small and not `heavy`.

        Returns:
            What the conversion gives, and the seconds that it took, which `duration` observes.
        """
        began, size = time.monotonic(), message.ByteSize()
        if not heavy and size <= _SMALL_BYTES:
            result = conversion()
        else:
            threads = self._threads if size <= _LARGE_BYTES else self._patient
            result = await asyncio.get_running_loop().run_in_executor(threads, conversion)
        seconds = time.monotonic() - began
        duration.observe(seconds)
        return result, seconds

    async def run(self, work: Callable[[], Result]) -> Result:
        """Does work beside the event loop that takes no more than a moment."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    def close(self) -> None:
        """Waits for what runs; nothing else is begun."""
        self._threads.shutdown(cancel_futures=True)
        self._patient.shutdown(cancel_futures=True)
