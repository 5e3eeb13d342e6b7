"""What holds for all tests."""

from __future__ import annotations

import os
import signal

# Tests run side by side, a thread of PyTorch each: two that share processors wait for each other.
# Before torch is imported, here and by what tests start.
os.environ.setdefault("OMP_NUM_THREADS", "1")


def pytest_configure() -> None:
    """Lets interrupts interrupt: what a shell runs in the background ignores them, and so would
    every process that a test starts."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
