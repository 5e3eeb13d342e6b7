"""Medians of steps, and engines that disagree."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from bench.engines.catalogue import CTRANSLATE2, FORMERD, FORMERD_INT8
from bench.engines.engine import Generated, Ids
from bench.step_times import Cell, WrongAnswer, step_time, step_times


class FakeEngine:
    """Answers at once with tokens of its own."""

    def __init__(self, token: int) -> None:
        self.calls: list[tuple[int, int]] = []
        self._token = token

    def generate(self, prompts: Sequence[Ids], new_tokens: int) -> Generated:
        self.calls.append((len(prompts), len(prompts[0])))
        return Generated(
            [[self._token] * new_tokens for _ in prompts], [0.5 + n for n in range(new_tokens)]
        )


def prompt(length: int) -> tuple[int, ...]:
    return (7,) * length


def test_prefill_and_decode_are_told_apart() -> None:
    runs = [Generated([], [2.0, 2.1, 2.3]), Generated([], [4.0, 4.1, 4.2])]
    result = step_time("x", Cell(batch=4, positions=6), runs)
    assert result.prefill_tokens_per_second == pytest.approx(4 * 6 / 3.0)
    assert result.decode_milliseconds == pytest.approx(100)


def test_every_engine_runs_every_cell() -> None:
    engines = {FORMERD: FakeEngine(1), CTRANSLATE2: FakeEngine(1)}
    cells = [Cell(1, 128), Cell(4, 16)]
    found = list(step_times(engines, cells, prompt, steps=2, repeats=2))
    assert [[(each.engine, each.batch, each.positions) for each in cell] for cell in found] == [
        [(engine, cell.batch, cell.positions) for engine in engines] for cell in cells
    ]
    for engine in engines.values():
        assert engine.calls[1:] == [(1, 128), (1, 128), (4, 16), (4, 16)]


def test_wrong_tokens_are_not_timed() -> None:
    engines = {FORMERD: FakeEngine(1), CTRANSLATE2: FakeEngine(2)}
    with pytest.raises(WrongAnswer, match="differ"):
        next(step_times(engines, [Cell(1, 8)], prompt, steps=1, repeats=1))


def test_reduced_precision_may_differ() -> None:
    engines = {FORMERD: FakeEngine(1), FORMERD_INT8: FakeEngine(2)}
    assert next(step_times(engines, [Cell(1, 8)], prompt, steps=1, repeats=1))
