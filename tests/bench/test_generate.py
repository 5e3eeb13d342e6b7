"""The generation benchmark keeps what it has measured, whatever interrupts it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bench.generate import Bench
from bench.results import Results, Throughput


def test_mixed_adds_each_system_when_it_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    services = iter([[Throughput("ours", 16, 100, 1.0)], [Throughput("ours", 16, 100, 2.0)]])

    def peers(_bench: Bench) -> Iterator[Throughput]:
        yield Throughput("peer", 8, 100, 4.0)

    monkeypatch.setattr(Bench, "_services", lambda _bench: iter(next(services)))
    monkeypatch.setattr(Bench, "_peers", peers)
    results = Results()
    kept = [
        {each.system: each.seconds for each in results.mixed}
        for _ in Bench.__new__(Bench).mixed(results)
    ]
    assert kept == [{"ours": 1.0}, {"ours": 1.0, "peer": 4.0}, {"ours": 2.0, "peer": 4.0}]
