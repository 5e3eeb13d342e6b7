"""What came between the turns of a request, read from an engine's trace."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from server.request import Ticket
from server.trace import Did, TraceEvent


def chunks_between_steps(events: Sequence[TraceEvent], ticket: Ticket) -> list[int]:
    """How many chunks of prompts come between each two decode steps of a request."""
    steps = [
        index
        for index, event in enumerate(events)
        if event.did is Did.DECODE and ticket in event.tickets
    ]
    return [
        sum(event.did is Did.PREFILL for event in events[first:second])
        for first, second in pairwise(steps)
    ]
