"""What a load came to, as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from client.load.profile import Kind, Plan
from client.load.tally import Record, Tally, first_tokens, latencies, percentile
from client.results import Model

_SHARES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}


def report(plan: Plan, models: Sequence[Model], tally: Tally) -> dict[str, Any]:
    """Everything that there is to say; times in seconds."""
    return {
        "plan": {**asdict(plan), "profile": plan.profile.name},
        "models": {model.name: model.digest for model in models},
        "seconds": tally.seconds,
        "answers_per_second": tally.answers_per_second,
        "calls": {kind: _calls(tally.of(kind)) for kind in Kind if tally.begun[kind]},
        "faults": [asdict(fault) for fault in tally.faults],
        "timeline": _timeline(tally.records),
    }


def _calls(records: Sequence[Record]) -> dict[str, Any]:
    return {
        "ends": _ends(records),
        "latency": _percentiles(latencies(records)),
        "first_token": _percentiles(first_tokens(records)),
    }


def _timeline(records: Sequence[Record]) -> list[dict[str, Any]]:
    """Second by second, the calls that ended in it."""
    seconds: dict[int, list[Record]] = {}
    for record in records:
        seconds.setdefault(int(record.began + record.seconds), []).append(record)
    return [
        {"second": second, "ends": _ends(ended), "latency": _percentiles(latencies(ended))}
        for second, ended in sorted(seconds.items())
    ]


def _ends(records: Sequence[Record]) -> dict[str, int]:
    return dict(Counter(record.end.value for record in records))


def _percentiles(ordered: Sequence[float]) -> dict[str, float]:
    if not ordered:
        return {}
    return {name: percentile(ordered, share) for name, share in _SHARES.items()}
