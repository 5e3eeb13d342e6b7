"""Runs in pieces meet in one file."""

from __future__ import annotations

from pathlib import Path

from bench.report import targets
from bench.results import (
    Latencies,
    MemoryCeiling,
    Percentiles,
    Results,
    StepParts,
    StepTime,
    Throughput,
)
from bench.step_parts import OTHER, SAMPLER, TOP_P

FULL = Results(
    "a machine",
    MemoryCeiling(40e9, {"formerd": 400_000_000}),
    [StepTime("formerd", 1, 128, 800.0, 12.5)],
    [Throughput("formerd, engine", 16, 1000, 8.0), Throughput("transformers", 8, 1000, 25.0)],
    Latencies(64, 0.5, Percentiles(0.2, 1.0), Percentiles(0.05, 0.2)),
    [StepParts(TOP_P, {SAMPLER: 4.0, OTHER: 16.0})],
)


def test_a_file_gives_back_what_was_written(tmp_path: Path) -> None:
    path = tmp_path / "new" / "results.json"
    FULL.write(path)
    assert Results.read(path) == FULL
    assert Results.read(tmp_path / "none.json") == Results()


def test_what_is_measured_again_replaces_what_was_there() -> None:
    results = Results(steps=[StepTime("a", 1, 128, 1.0, 1.0), StepTime("b", 1, 128, 1.0, 1.0)])
    results.add_steps([StepTime("b", 1, 128, 2.0, 2.0), StepTime("b", 4, 128, 3.0, 3.0)])
    assert results.steps == [
        StepTime("a", 1, 128, 1.0, 1.0),
        StepTime("b", 1, 128, 2.0, 2.0),
        StepTime("b", 4, 128, 3.0, 3.0),
    ]


def test_targets_are_ratios_of_what_was_measured() -> None:
    reached = {target.what: (target.reached, target.met) for target in targets(FULL)}
    assert reached == {
        "decode at batch 1, share of the memory ceiling": (10 / 12.5, True),
        "mixed workload, times the best fp32 peer": (25 / 8, True),
        "sampler with top_p, share of a step at batch 8": (0.2, False),
    }
