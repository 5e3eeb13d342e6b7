"""`python -m tests.load.timed_server DIR... FLAGS`: a server that logs what holds up its loop.

asyncio's own log of slow callbacks goes by the clock, and on a busy machine blames whatever was
running when another process took the processor; the processor time of a callback is its own.
"""

from __future__ import annotations

import asyncio
import time
from unittest.mock import patch

import structlog

from server.command import main

EVENT = "a callback took long"
_SLOW_SECONDS = 0.1

_log = structlog.get_logger()
_run = asyncio.Handle._run


def _run_timed(handle: asyncio.Handle) -> None:
    began, used = time.monotonic(), time.thread_time()
    _run(handle)
    seconds, processor_seconds = time.monotonic() - began, time.thread_time() - used
    if max(seconds, processor_seconds) > _SLOW_SECONDS:
        _log.warning(
            EVENT, seconds=seconds, processor_seconds=processor_seconds, callback=repr(handle)
        )


if __name__ == "__main__":
    with patch.object(asyncio.Handle, "_run", _run_timed):
        main()
