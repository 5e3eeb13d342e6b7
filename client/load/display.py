"""How a load is watched: a table that lives on a terminal, plain lines elsewhere."""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from client.load.attempt import End
from client.load.profile import Kind, Plan
from client.load.tally import Record, Tally, first_tokens, latencies, percentile

_LIVE_SECONDS = 1.0
_LINE_SECONDS = 5.0
_TIMES = ("p50", "p99", "max", "first\np50", "first\np99")
_SHOWN_FAULTS = 5
_SHOWN_CHARACTERS = 300


@asynccontextmanager
async def shown(tally: Tally, plan: Plan, console: Console) -> AsyncIterator[None]:
    """Shows how the load goes until the block is left."""
    show = _live if console.is_terminal else _lines
    showing = asyncio.create_task(show(tally, plan, console, time.monotonic()))
    try:
        yield
    finally:
        showing.cancel()
        await asyncio.wait([showing])


def print_result(tally: Tally, console: Console) -> None:
    """What came of the load: the table, and how many answers went wrong."""
    console.print(table(tally))
    if not tally.faults:
        console.print(Text("nothing lost, duplicated, swapped or wrong", style="green"))
        return
    counts = Counter(fault.wrong for fault in tally.faults)
    listed = ", ".join(f"{count} {wrong}" for wrong, count in counts.items())
    console.print(Text(listed, style="bold red"))
    for fault in tally.faults[:_SHOWN_FAULTS]:
        line = f"{fault.wrong}: {fault.request_id}: {fault.detail}"
        console.print(Text(line[:_SHOWN_CHARACTERS], style="red"), soft_wrap=True)


def table(tally: Tally) -> Table:
    """Each kind of call by how it ended, with the times of those that were answered."""
    shown = Table(box=None, header_style="bold")
    kinds = [kind for kind in Kind if tally.begun[kind]]
    ends = [end for end in End if end is End.ANSWERED or tally.ends[end]]
    shown.add_column("", no_wrap=True)
    for column in ("begun", *ends, *_TIMES):
        shown.add_column(column, justify="right", vertical="bottom", no_wrap=True)
    for kind in kinds:
        shown.add_row(kind, *_cells(tally.begun[kind], tally.of(kind), ends))
    if len(kinds) > 1:
        shown.add_row("all", *_cells(tally.begun.total(), tally.records, ends), style="bold")
    return shown


async def _live(tally: Tally, plan: Plan, console: Console, began: float) -> None:
    with Live(console=console, transient=True, auto_refresh=False) as live:
        while True:
            live.update(Group(table(tally), Text(_line(tally, plan, began))), refresh=True)
            await asyncio.sleep(_LIVE_SECONDS)


async def _lines(tally: Tally, plan: Plan, console: Console, began: float) -> None:
    while True:
        await asyncio.sleep(_LINE_SECONDS)
        console.print(Text(_line(tally, plan, began)), soft_wrap=True)


def _line(tally: Tally, plan: Plan, began: float) -> str:
    ends = tally.ends
    running = tally.begun.total() - len(tally.records)
    parts = [
        f"{time.monotonic() - began:.0f} of {plan.seconds:g} s",
        f"{running} running",
        *(f"{ends[end]} {end}" for end in End if ends[end]),
        f"{tally.answers_per_second:.1f} answers/s",
        f"{len(tally.faults)} faults",
    ]
    return " · ".join(parts)


def _cells(begun: int, records: Sequence[Record], ends: Sequence[End]) -> list[str]:
    counts = Counter(record.end for record in records)
    whole, first = latencies(records), first_tokens(records)
    times = [percentile(whole, share) for share in (0.5, 0.99, 1.0)]
    times += [percentile(first, share) for share in (0.5, 0.99)]
    return [str(begun), *(str(counts[end]) for end in ends), *map(_seconds, times)]


def _seconds(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.3f}"
