"""What a load has come to so far: counts, times and faults."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from client.load.attempt import End, Outcome
from client.load.judge import Fault
from client.load.profile import Kind


@dataclass(frozen=True)
class Record:
    """What is kept of an outcome; times in seconds, `began` from the begin of the load."""

    request_id: str
    kind: Kind
    end: End
    began: float
    seconds: float
    first_token_seconds: float | None


@dataclass
class Tally:
    """Grows with every call that begins and ends.

    Attributes:
        begun: calls of each kind, those that run included.
        records: of those that have ended, in that order.
        faults: of the answers that went wrong.
    """

    begun: Counter[Kind] = field(default_factory=Counter)
    records: list[Record] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)

    def add(self, outcome: Outcome, began: float, fault: Fault | None) -> None:
        """Takes a call that has ended."""
        self.records.append(
            Record(
                outcome.attempt.id,
                outcome.attempt.kind,
                outcome.end,
                began,
                outcome.seconds,
                outcome.first_token_seconds,
            )
        )
        if fault is not None:
            self.faults.append(fault)

    @property
    def ends(self) -> Counter[End]:
        """Calls by how they ended."""
        return Counter(record.end for record in self.records)

    @property
    def seconds(self) -> float:
        """When the last call ended, from the begin of the load."""
        return max((record.began + record.seconds for record in self.records), default=0.0)

    @property
    def answers_per_second(self) -> float:
        """Answered calls by the time that all took; 0 before the first has ended."""
        return self.ends[End.ANSWERED] / self.seconds if self.records else 0.0

    def of(self, kind: Kind) -> list[Record]:
        """The calls of one kind that have ended."""
        return [record for record in self.records if record.kind is kind]


def latencies(records: Iterable[Record]) -> list[float]:
    """Seconds of the answered calls, sorted."""
    return sorted(record.seconds for record in records if record.end is End.ANSWERED)


def first_tokens(records: Iterable[Record]) -> list[float]:
    """Seconds to the first token of the answered streams, sorted."""
    return sorted(
        record.first_token_seconds
        for record in records
        if record.end is End.ANSWERED and record.first_token_seconds is not None
    )


def percentile(ordered: Sequence[float], share: float) -> float:
    """The value that so large a share of sorted values does not exceed; NaN of none."""
    if not ordered:
        return math.nan
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]
