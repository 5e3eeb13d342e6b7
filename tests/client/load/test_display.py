from __future__ import annotations

import asyncio
import io

import pytest
from rich.console import Console

from client.load import display
from client.load.attempt import Attempt, End, Outcome
from client.load.judge import Fault, Wrong
from client.load.profile import PROFILES, Kind, Plan
from client.load.question import EmbedQuestion
from client.load.tally import Tally

PLAN = Plan(PROFILES["embed"], clients=1, seconds=60.0)


@pytest.fixture
def tally() -> Tally:
    """Two calls, of which one runs still."""
    tally = Tally()
    tally.begun[Kind.EMBED] = 2
    attempt = Attempt("1", Kind.EMBED, EmbedQuestion("model", ("a",)))
    tally.add(Outcome(attempt, End.ANSWERED, seconds=0.125), began=0.0, fault=None)
    return tally


@pytest.mark.parametrize("terminal", [True, False])
async def test_a_load_is_shown_while_it_runs(
    terminal: bool, tally: Tally, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(display, "_LIVE_SECONDS", 0.01)
    monkeypatch.setattr(display, "_LINE_SECONDS", 0.01)
    output = io.StringIO()
    console = Console(file=output, force_terminal=terminal, width=200)
    async with display.shown(tally, PLAN, console):
        async with asyncio.timeout(10):
            while output.getvalue().count("of 60 s") < 2:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
    for shown in ("1 running", "1 answered", "8.0 answers/s", "0 faults"):
        assert shown in output.getvalue()
    assert ("p99" in output.getvalue()) is terminal  # else lines alone


def test_faults_are_listed(tally: Tally) -> None:
    tally.faults = [Fault(Wrong.LOST, f"load-{number}", "gone") for number in range(20)]
    output = io.StringIO()
    display.print_result(tally, Console(file=output, width=200))
    assert "20 lost" in output.getvalue()
    assert output.getvalue().count("lost: load-") == 5
    assert "0.125" in output.getvalue()
