"""Many clients at once: everything that callers do, at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from client.load.attempt import End
from client.load.profile import PROFILES, Kind
from client.load.reference import Reference
from client.load.tally import first_tokens, latencies
from tests.e2e.server_process import MetricsSnapshot, ServerProcess
from tests.load.accounts import assert_balanced, assert_faultless, assert_logged
from tests.load.callers import put_under_load
from tests.load.finding import Finding, spread

_QUIET_SECONDS = 60


async def company(
    server: ServerProcess, references: Sequence[Reference], *, clients: int, seconds: float
) -> Finding:
    """Clients embed, generate and stream; some leave, some have deadlines that pass."""
    before = server.metrics()
    tally = await put_under_load(
        server.target, references, PROFILES["mixed"], clients=clients, seconds=seconds
    )
    after = await asyncio.to_thread(server.wait_until_quiet, _QUIET_SECONDS)
    assert_faultless(tally)
    assert_logged(server, tally)
    assert_balanced(after)
    assert not {End.ANSWERED, End.LEFT, End.EXPIRED} - tally.ends.keys()
    decode, encode = (_batch_size(before, after, phase) for phase in ("decode", "encode"))
    assert decode > 2, "they have not shared their steps, and nothing was tested"
    return Finding(
        f"{clients} clients embed, generate and stream for {seconds:g} s, with random cancels "
        "and deadlines",
        {
            "answers a second": f"{tally.answers_per_second:.1f}",
            **{f"{kind}, p50 and p99": spread(latencies(tally.of(kind))) for kind in Kind},
            "first token of a stream, p50 and p99": spread(first_tokens(tally.records)),
            "rows of a decode step, texts of a batch": f"{decode:.1f}, {encode:.1f}",
        },
        tally,
    )


def _batch_size(before: MetricsSnapshot, after: MetricsSnapshot, phase: str) -> float:
    """Sequences of a run, on average."""
    sequences, runs = (
        after.total(name, {"phase": phase}) - before.total(name, {"phase": phase})
        for name in ("formerd_batch_sequences_sum", "formerd_batch_sequences_count")
    )
    return sequences / runs
