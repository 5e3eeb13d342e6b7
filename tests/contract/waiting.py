"""Waiting for what a server measures, without holding up the calls that are being made."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tests.e2e.server_process import MetricsSnapshot, ServerProcess

_SECONDS = 120  # far more than anything waited for takes


async def measured(
    server: ServerProcess, condition: Callable[[MetricsSnapshot], bool]
) -> MetricsSnapshot:
    """The first measurements that meet a condition."""
    async with asyncio.timeout(_SECONDS):
        while True:
            snapshot = await asyncio.to_thread(server.metrics)
            if condition(snapshot):
                return snapshot
            await asyncio.sleep(0.01)
