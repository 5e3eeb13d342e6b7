"""MEM-03: whatever is asked, health and metrics are answered."""

from __future__ import annotations

import signal
from pathlib import Path

from tests.e2e.server_process import starting_server
from tests.load import timed_server
from tests.load.scenarios.responsiveness import responsiveness


async def test_health_and_metrics_beside_everything_heavy(tiny_models: list[Path]) -> None:
    flags = ("--threads", "1")
    with starting_server(tiny_models, *flags, module=timed_server.__name__) as server:
        server.wait_until_ready()
        await responsiveness(
            server,
            "tiny-encoder",
            "tiny-learned-decoder",
            lists=1,
            large_texts=4,
            tokens=50,
        )
        server.signal(signal.SIGTERM)
        assert server.wait() == 0
