"""More than a server can do: who comes too much is told so at once, and nobody else suffers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from client.aio import AsyncClient
from client.load.attempt import Attempt, End
from client.load.call import carry_out
from client.load.judge import Judge
from client.load.profile import Kind, Profile
from client.load.reference import Reference
from client.load.tally import latencies
from tests.e2e.server_process import ServerProcess
from tests.load.accounts import assert_balanced, assert_faultless, assert_logged
from tests.load.callers import put_under_load
from tests.load.finding import Finding, spread

TIMES = 4  # the capacity
_CONNECTIONS = 16
_CALM_CLIENTS = 8  # enough to keep the server busy, and too few to fill its queue
_DEADLINE_SECONDS = 30.0
_LEAST_REFUSED = 0.3  # of the calls; three quarters are too many
_QUIET_SECONDS = 60


async def overload(
    server: ServerProcess,
    references: Sequence[Reference],
    kind: Kind,
    *,
    measured_seconds: float,
    seconds: float,
) -> Finding:
    """Measures what the server can do of a kind of call, then calls it four times as often.

    Every refusal has to say when to come back (it would be a fault otherwise), every accepted call
    to be answered within its deadline, and the next call after the last to be answered.
    """
    profile = Profile(kind, {kind: 1.0})
    calm = await put_under_load(
        server.target, references, profile, clients=_CALM_CLIENTS, seconds=measured_seconds
    )
    assert_faultless(calm)
    tally = await put_under_load(
        server.target,
        references,
        profile,
        clients=_CONNECTIONS,
        seconds=seconds,
        rate=TIMES * calm.answers_per_second,
        timeout=_DEADLINE_SECONDS,
    )
    recovery = await _recovery(server.target, references, kind)
    after = await asyncio.to_thread(server.wait_until_quiet, _QUIET_SECONDS)
    assert_faultless(tally)
    assert_logged(server, tally)
    assert_balanced(after)
    assert set(tally.ends) == {End.ANSWERED, End.REFUSED}, tally.ends
    assert tally.ends[End.REFUSED] > _LEAST_REFUSED * len(tally.records)
    refusals = sorted(each.seconds for each in tally.records if each.end is End.REFUSED)
    answers = latencies(tally.records)
    return Finding(
        f"{TIMES} times as many calls to {kind} as the server can answer, for {seconds:g} s",
        {
            "capacity, answers a second": f"{calm.answers_per_second:.1f}",
            "a refusal, p50 and p99": spread(refusals),
            f"an answer, longest (deadline {_DEADLINE_SECONDS:g} s)": f"{answers[-1]:.2f} s",
            "the first call afterwards": f"{recovery:.3f} s",
        },
        tally,
    )


async def _recovery(target: str, references: Sequence[Reference], kind: Kind) -> float:
    """Seconds that one call takes as soon as the others have ended."""
    question = next(each.question for each in references if each.answers(kind))
    async with AsyncClient(target) as client:
        outcome = await carry_out(Attempt(f"recovery-{time.time_ns()}", kind, question), client)
    assert outcome.end is End.ANSWERED, outcome
    assert Judge(references).fault(outcome) is None
    return outcome.seconds
