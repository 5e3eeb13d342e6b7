"""One small pool of threads for every session of these tests."""

from __future__ import annotations

import pytest

from server.session import share_thread_pool


@pytest.fixture(scope="session", autouse=True)
def thread_pool() -> None:
    share_thread_pool(1)
