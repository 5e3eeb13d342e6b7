"""A server that nobody calls waits, and does not spin."""

from __future__ import annotations

import time

from tests.e2e.server_process import ServerProcess

SECONDS = 2.0
MOST = 0.2  # of a processor; a thread that spins takes all of one


def test_a_server_at_rest_takes_next_to_no_processor_time(server: ServerProcess) -> None:
    before = server.wait_until_quiet().total("process_cpu_seconds_total")
    time.sleep(SECONDS)
    taken = server.metrics().total("process_cpu_seconds_total") - before
    assert taken < MOST * SECONDS
