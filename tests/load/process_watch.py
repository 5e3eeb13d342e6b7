"""What a process takes of its machine, over time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import psutil

# The transport starts threads when calls pile up, and lets them go; nobody else may.
TRANSPORT_THREADS = 8
_SAMPLE_SECONDS = 0.2


class ProcessWatch:
    """Samples of the resident memory (bytes) and the threads of a process, and when (seconds)."""

    def __init__(self, pid: int) -> None:
        self._process = psutil.Process(pid)
        self._began = time.monotonic()
        self.seconds: list[float] = []
        self.resident: list[int] = []
        self.threads: list[int] = []

    def sample(self) -> None:
        """Takes one more."""
        self.seconds.append(time.monotonic() - self._began)
        self.resident.append(self._process.memory_info().rss)
        self.threads.append(self._process.num_threads())

    @asynccontextmanager
    async def sampling(self) -> AsyncIterator[None]:
        """Takes samples again and again until the block is left."""

        async def repeat() -> None:
            while True:
                self.sample()
                await asyncio.sleep(_SAMPLE_SECONDS)

        repeating = asyncio.create_task(repeat())
        try:
            yield
        finally:
            repeating.cancel()
        self.sample()

    @property
    def late_growth(self) -> int:
        """Bytes by which the peak of the last quarter exceeds that of the quarter before it."""
        quarter = len(self.resident) // 4
        return max(self.resident[-quarter:]) - max(self.resident[-2 * quarter : -quarter])

    @property
    def late_threads(self) -> int:
        """By how many threads the last half exceeds the first."""
        half = len(self.threads) // 2
        return max(self.threads[half:]) - max(self.threads[:half])
