"""MEM-03: whatever is asked, health and metrics are answered."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.server_process import running_server
from tests.load.scenarios.responsiveness import responsiveness


async def test_health_and_metrics_beside_everything_heavy(
    tiny_models: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONASYNCIODEBUG", "1")  # for the server, which is started now
    with running_server(tiny_models, "--threads", "1") as server:
        await responsiveness(
            server,
            "tiny-encoder",
            "tiny-learned-decoder",
            lists=1,
            large_texts=4,
            tokens=50,
        )
