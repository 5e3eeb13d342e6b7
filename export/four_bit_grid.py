"""Sixteen numbers for each block of a weight: the grid that lies closest to it.

The obvious grid reaches from a block's least to its largest number. But its zero point must be one
of the sixteen, which moves it by up to half a step against all 32 numbers at once; and one outlier
makes every step coarse. So wider and narrower grids around the same zero point are tried, each with
the scale that fits its values best, by least squares. The one with the least squared error stays:
a sixth less error than the obvious grid has. (llama.cpp searches for its k-quants likewise, whose
offset may be any number.)
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_LARGEST = np.float32(15)
_WIDTHS = tuple(np.float32(percent) / 100 for percent in range(80, 120, 5))  # of the obvious
_SLICE = 8192  # blocks at a time: what fits a processor's cache
_TINY = np.float32(np.finfo(np.float32).tiny)

Numbers = NDArray[np.float32]
Small = NDArray[np.uint8]


def fit_grid(blocks: Numbers) -> tuple[Small, Numbers, Small]:
    """Values, scales and zero points of `blocks [n, 32]`: uint8 `[n, 32]`, fp32 and uint8 `[n]`."""
    values = np.empty(blocks.shape, np.uint8)
    scales = np.empty(len(blocks), np.float32)
    zero_points = np.empty(len(blocks), np.uint8)
    for start in range(0, len(blocks), _SLICE):
        part = slice(start, start + _SLICE)
        columns = np.ascontiguousarray(blocks[part].T)  # [32, n]: sums go down, in one order
        scale, zero_point = _search(columns)
        scales[part], zero_points[part] = scale, zero_point
        values[part] = (_steps(columns, scale, zero_point) + zero_point).T
    return values, scales, zero_points


def _search(columns: Numbers) -> tuple[Numbers, Numbers]:
    """The best scale and zero point of each column `[32, n]`, fp32 `[n]` each."""
    low = np.minimum(columns.min(axis=0), 0)
    obvious = (np.maximum(columns.max(axis=0), 0) - low) / _LARGEST
    zero_point = np.clip(np.rint(-low / np.maximum(obvious, _TINY)), 0, _LARGEST)
    best_scale = obvious.copy()  # which stays where it is not finite
    best_gain = np.full_like(obvious, -1)
    for width in _WIDTHS:
        scale, gain = _fit(columns, _steps(columns, obvious * width, zero_point))
        better = gain > best_gain
        np.copyto(best_gain, gain, where=better)
        np.copyto(best_scale, scale, where=better)
    return best_scale, zero_point


def _steps(columns: Numbers, scale: Numbers, zero_point: Numbers) -> Numbers:
    """How many steps from zero the nearest grid number of each is, `[32, n]`."""
    steps: Numbers = np.divide(columns, np.maximum(scale, _TINY))
    np.rint(steps, out=steps)
    np.clip(steps, -zero_point, _LARGEST - zero_point, out=steps)
    return steps


def _fit(columns: Numbers, steps: Numbers) -> tuple[Numbers, Numbers]:
    """The scale with which `steps` come closest, and by how much less the squared error then is."""
    together = (columns * steps).sum(axis=0)
    square = np.maximum((steps * steps).sum(axis=0), 1)
    return together / square, together * together / square
