"""64 clients at once on tiny models; `python -m tests.load` does the same to real ones, at length.

What must never happen: an answer that is lost, duplicated, swapped or wrong.
"""

from __future__ import annotations

from pathlib import Path

from tests.e2e.server_process import running_server
from tests.load.callers import references_of
from tests.load.process_watch import TRANSPORT_THREADS, ProcessWatch
from tests.load.scenarios.company import company
from tests.load.scenarios.drain import drain
from tests.load.scenarios.killed_clients import killed_clients

FLAGS = ("--slots", "8", "--threads", "1")


async def test_clients_that_embed_generate_stream_leave_die_and_a_server_that_stops(
    tiny_models: list[Path],
) -> None:
    with running_server(tiny_models, *FLAGS) as server:
        references = await references_of(server.target)
        watch = ProcessWatch(server.process.pid)
        async with watch.sampling():
            await company(server, references, clients=64, seconds=6)
        assert watch.late_threads <= TRANSPORT_THREADS
        await killed_clients(
            server,
            references,
            "tiny-learned-decoder",
            kills=2,
            tokens=900,
            clients=4,
            seconds=2,
        )
        await drain(server, references, clients=32, seconds=3)
