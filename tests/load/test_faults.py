from __future__ import annotations

import signal
from pathlib import Path

from tests.e2e.server_process import running_server, starting_server
from tests.load import faulty_server
from tests.load.callers import references_of
from tests.load.scenarios.faults import faults, unused_token

FLAGS = ("--slots", "8", "--threads", "1")


async def test_runs_that_fail_are_nobody_elses_business(tiny_models: list[Path]) -> None:
    with running_server(tiny_models, *FLAGS) as healthy:
        references = await references_of(healthy.target)
        bad_token = await unused_token(healthy.target, references)
    flags = (*FLAGS, faulty_server.FLAG, str(bad_token))
    with starting_server(tiny_models, *flags, module="tests.load.faulty_server") as server:
        server.wait_until_ready()
        await faults(server, references, bad_token, clients=16, seconds=3)
        server.signal(signal.SIGTERM)
        assert server.wait() == 0
