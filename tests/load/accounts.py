"""Whether callers and server agree on what became of every call."""

from __future__ import annotations

from client.load.attempt import End
from client.load.tally import Tally
from tests.e2e.server_process import MetricsSnapshot, ServerProcess

# What the server may have logged, by how a call ended for its caller. One that is given up may have
# succeeded at that very moment, or never have arrived.
_POSSIBLE: dict[End, set[str | None]] = {
    End.ANSWERED: {"OK"},
    End.REFUSED: {"RESOURCE_EXHAUSTED"},
    End.EXPIRED: {"DEADLINE_EXCEEDED", "CANCELLED", "OK", None},
    End.LEFT: {"CANCELLED", "OK", None},
    End.UNAVAILABLE: {"UNAVAILABLE", None},
}


def assert_faultless(tally: Tally) -> None:
    """No answer was lost, duplicated, swapped or wrong."""
    assert not tally.faults, tally.faults[:3]


def assert_logged(server: ServerProcess, tally: Tally) -> None:
    """The server logged each call at most once, and as what it was to its caller."""
    lines = server.events("request")
    statuses = {line["id"]: line["status"] for line in lines}
    assert len(statuses) == len(lines), "a call was logged twice"
    for record in tally.records:
        seen = statuses.get(record.request_id)
        assert seen in _POSSIBLE[record.end], (record, seen)


def assert_balanced(snapshot: MetricsSnapshot) -> None:
    """Of a quiet server: what began has ended, exactly, and nothing is left."""
    began = snapshot.total("formerd_requests_started_total")
    assert began == snapshot.total("formerd_requests_total")
    for name in ("requests_in_flight", "queue_depth", "cache_tokens"):
        assert snapshot.total(f"formerd_{name}") == 0, name
    assert snapshot.total("formerd_slots", {"state": "used"}) == 0
