from __future__ import annotations

import signal
from pathlib import Path

from client.load.profile import Kind
from tests.e2e.server_process import starting_server
from tests.load import slow_server
from tests.load.callers import references_of
from tests.load.scenarios.overload import overload

FLAGS = ("--slots", "2", "--max-queue", "16", "--threads", "1")


async def test_four_times_the_capacity(tiny_models: list[Path]) -> None:
    with starting_server(tiny_models, *FLAGS, module=slow_server.__name__) as server:
        server.wait_until_ready()
        references = await references_of(server.target)
        for kind in (Kind.EMBED, Kind.GENERATE):
            await overload(server, references, kind, measured_seconds=1.5, seconds=2.0)
        server.signal(signal.SIGTERM)
        assert server.wait() == 0
