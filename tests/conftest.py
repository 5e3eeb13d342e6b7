"""What holds for all tests."""

from __future__ import annotations

import signal


def pytest_configure() -> None:
    """Lets interrupts interrupt: what a shell runs in the background ignores them, and so would
    every process that a test starts."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
