"""What a scenario found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from client.load.tally import Tally, percentile
from tests.load.process_watch import ProcessWatch


@dataclass(frozen=True)
class Finding:
    """A scenario in which nothing went wrong: otherwise it would have raised.

    Attributes:
        title: what happened.
        figures: what was measured, as it is to be read.
        tally: the calls that were made and checked.
        watch: what the server took while it happened.
    """

    title: str
    figures: dict[str, str]
    tally: Tally = field(default_factory=Tally)
    watch: ProcessWatch | None = None


def spread(ordered: Sequence[float]) -> str:
    """Median and 99th percentile of sorted seconds."""
    return ", ".join(f"{1e3 * percentile(ordered, share):.0f} ms" for share in (0.5, 0.99))
