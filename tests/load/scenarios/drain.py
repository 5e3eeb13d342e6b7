"""A server that is told to stop while many clients call it."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Sequence

from client.load.attempt import End
from client.load.judge import Wrong
from client.load.reference import Reference
from tests.e2e.server_process import ServerProcess
from tests.load.accounts import assert_logged
from tests.load.callers import PATIENT, put_under_load
from tests.load.finding import Finding


async def drain(
    server: ServerProcess, references: Sequence[Reference], *, clients: int, seconds: float
) -> Finding:
    """SIGTERM halfway: what was accepted is answered, what comes later is told to go elsewhere."""
    load = asyncio.create_task(
        put_under_load(server.target, references, PATIENT, clients=clients, seconds=seconds)
    )
    await asyncio.sleep(seconds / 2)
    running = int(server.metrics().total("formerd_requests_in_flight"))
    server.signal(signal.SIGTERM)
    code = await asyncio.to_thread(server.wait)
    tally = await load
    assert code == 0, server.log()
    assert set(tally.ends) <= {End.ANSWERED, End.UNAVAILABLE}
    assert_logged(server, tally)  # who is told UNAVAILABLE was not accepted, or it would say OK
    assert "stopped before the request was complete" not in server.log()
    turned_away = {each.request_id for each in tally.records if each.end is End.UNAVAILABLE}
    assert {fault.request_id for fault in tally.faults} == turned_away
    assert {fault.wrong for fault in tally.faults} <= {Wrong.LOST}
    assert running > 0, "nothing ran, and nothing was tested"
    return Finding(
        f"SIGTERM while {clients} clients call",
        {
            "calls that ran, all of them answered": str(running),
            "calls told to go elsewhere": str(len(turned_away)),
            "exit code": str(code),
        },
        tally,
    )
