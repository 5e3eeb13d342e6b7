"""docs/load.md: what the scenarios found, between two marks in a page that people wrote."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from pathlib import Path

from client.load.attempt import End
from server.processors import usable_processors
from tests.load.finding import Finding

BEGIN, FINISH = "<!-- findings -->", "<!-- end of findings -->"
_SHOWN_ENDS = (End.ANSWERED, End.REFUSED, End.EXPIRED, End.LEFT, End.UNAVAILABLE)


def write_page(path: Path, findings: Sequence[Finding], seconds: float) -> None:
    """Replaces the findings of an earlier run."""
    before, _, rest = path.read_text().partition(BEGIN)
    _, _, after = rest.partition(FINISH)
    path.write_text(f"{before}{BEGIN}\n{_findings(findings, seconds)}\n{FINISH}{after}")


def _findings(findings: Sequence[Finding], seconds: float) -> str:
    calls = sum(len(finding.tally.records) for finding in findings)
    lines = [
        f"{calls:,} calls were compared with their references, in a run of {seconds / 60:.0f} "
        f"minutes on {usable_processors()} processors ({_processor()}). Of all answers, **none "
        "was lost, duplicated, swapped or wrong**.",
        "",
        f"| what happened | calls | {' | '.join(_SHOWN_ENDS)} | what was measured |",
        "|---|" + "---:|" * (1 + len(_SHOWN_ENDS)) + "---|",
        *map(_row, findings),
    ]
    return "\n".join(lines)


def _row(finding: Finding) -> str:
    ends, calls = finding.tally.ends, len(finding.tally.records)
    counts = [f"{calls:,}", *(f"{ends[end]:,}" for end in _SHOWN_ENDS)] if calls else []
    counts += [""] * (1 + len(_SHOWN_ENDS) - len(counts))
    measured = "<br>".join(f"{name}: {value}" for name, value in finding.figures.items())
    return f"| {finding.title} | {' | '.join(counts)} | {measured} |"


def _processor() -> str:
    """Its name, where the system tells."""
    information = Path("/proc/cpuinfo")
    if information.exists():
        for line in information.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.machine()
