"""Prefill and decode of every engine, cell by cell: batch size times positions.

In each cell the engines take turns, so that a slow minute of the machine is everybody's.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from bench.engines.catalogue import FORMERD, FP32_PEERS
from bench.engines.engine import Engine, Generated, Ids
from bench.results import StepTime

_COMPARED_POSITIONS = 64
_COMPARED_TOKENS = 8


class WrongAnswer(Exception):
    """An engine that should give the same tokens as the others does not: its time means nothing."""


@dataclass(frozen=True)
class Cell:
    """Prompts of one call, all of one length."""

    batch: int
    positions: int


def step_times(
    engines: Mapping[str, Engine],
    cells: Sequence[Cell],
    prompt: Callable[[int], Ids],
    *,
    steps: int,
    repeats: int,
) -> Iterator[list[StepTime]]:
    """The times of all engines, cell by cell.

    Args:
        engines: by name.
        prompt: makes another prompt of a length at every call.

    Raises:
        WrongAnswer: two engines in fp32 disagree.
    """
    check_answers(engines, prompt(_COMPARED_POSITIONS))
    for cell in cells:
        runs: dict[str, list[Generated]] = defaultdict(list)
        for _ in range(repeats):
            prompts = [prompt(cell.positions) for _ in range(cell.batch)]
            for name, engine in engines.items():
                runs[name].append(engine.generate(prompts, steps + 1))
        yield [step_time(name, cell, generated) for name, generated in runs.items()]


def check_answers(engines: Mapping[str, Engine], prompt: Ids) -> None:
    """Compares the first tokens of those in fp32; it warms all of them up."""
    answers = {
        name: engine.generate([prompt], _COMPARED_TOKENS).ids[0] for name, engine in engines.items()
    }
    exact = {name: ids for name, ids in answers.items() if name in (FORMERD, *FP32_PEERS)}
    if len({tuple(ids) for ids in exact.values()}) > 1:
        raise WrongAnswer(f"greedy tokens in fp32 differ: {exact}")


def step_time(engine: str, cell: Cell, runs: Sequence[Generated]) -> StepTime:
    """Medians: of the runs for prefill, of all steps of all runs for decode."""
    prefill = median(run.seconds[0] for run in runs)
    decode = median(
        after - before
        for run in runs
        for before, after in zip(run.seconds, run.seconds[1:], strict=False)
    )
    rate = cell.batch * cell.positions / prefill
    return StepTime(engine, cell.batch, cell.positions, rate, 1e3 * decode)
