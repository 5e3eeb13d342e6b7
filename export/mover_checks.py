"""The numbers half of the gate for the row mover: what it copies is exact, the rest untouched."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from export.decoder_run import MoverRun, Rows
from export.parity import Check, compare

_SOURCE, _DESTINATION = 2, 1  # of three rows


def check_moves(mover: MoverRun, rows: Rows) -> Iterator[Check]:
    """Spans of one row to another of the same three, which are overwritten with random numbers."""
    _fill(rows, seed=0)
    capacity = _positions(rows)
    half = capacity // 2
    spans = {(1, 0, 0), (half + 1, 0, 0), (capacity, 0, 0), (half, half, 0), (half, 1, 1)}
    for span in sorted(spans):
        yield _check_move(mover, rows, rows, *span)


def check_copies(mover: MoverRun, source: Rows, destination: Rows) -> Iterator[Check]:
    """Whole texts of three rows to three longer ones; both are overwritten."""
    _fill(source, seed=1)
    _fill(destination, seed=2)
    longest = _positions(source)
    for length in sorted({1, longest // 2 + 1, longest}):
        yield _check_move(mover, source, destination, length, 0, 0)


def _check_move(
    mover: MoverRun, source: Rows, destination: Rows, length: int, start: int, to: int
) -> Check:
    wanted = {name: rows.copy() for name, rows in destination.items()}
    for name, rows in wanted.items():
        rows[_DESTINATION, :, to : to + length] = source[name][_SOURCE, :, start : start + length]
    mover.move(source, _SOURCE, destination, _DESTINATION, length, start, to)
    places = f"{start} of {_positions(source)} to {to} of {_positions(destination)}"
    shape = f"{length} positions, {places}, {len(wanted)} caches"
    return compare("moved row", shape, _flat(destination), _flat(wanted), bound=0.0)


def _fill(rows: Rows, seed: int) -> None:
    generator = np.random.default_rng(seed)
    for cache in rows.values():
        cache[:] = generator.standard_normal(cache.shape)


def _positions(rows: Rows) -> int:
    return int(next(iter(rows.values())).shape[2])


def _flat(rows: Rows) -> np.ndarray[tuple[int], np.dtype[np.floating]]:
    return np.concatenate([cache.ravel() for cache in rows.values()])
