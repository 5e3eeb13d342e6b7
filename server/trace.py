"""What an engine did, step by step; off by default.

Tests read order in steps from it, instead of milliseconds.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from server.request import Ticket


class Did(StrEnum):
    """What an engine can do to requests."""

    ACCEPT = "accept"
    ENCODE = "encode"
    REUSE = "reuse"
    PREFILL = "prefill"
    DECODE = "decode"
    SUCCEED = "succeed"
    FAIL = "fail"
    CANCEL = "cancel"


@dataclass(frozen=True)
class TraceEvent:
    """One thing that was done.

    Attributes:
        step: the iteration of the engine, from 0.
        tickets: whose requests; of a batch, one for each row in order.
        span: of a prefill or of what was reused of one, the positions [start, end); else empty.
    """

    step: int
    did: Did
    tickets: tuple[Ticket, ...]
    span: tuple[int, ...] = ()


@dataclass
class Trace:
    """Records events; written by the engine's thread."""

    events: list[TraceEvent] = field(default_factory=list)
    step: int = 0

    def record(self, did: Did, *tickets: Ticket, span: tuple[int, ...] = ()) -> None:
        """Adds an event of the current step."""
        self.events.append(TraceEvent(self.step, did, tickets, span))

    def of(self, did: Did) -> list[TraceEvent]:
        """The events of one kind."""
        return [event for event in self.events if event.did is did]
