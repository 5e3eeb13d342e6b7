"""Temperature, top-k, top-p and min-p: from scores to the tokens that may be drawn.

All arithmetic is on one row and in a fixed order, so that a row's result is bitwise the same
whatever other rows are sampled with it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from server.request import Sampling

_GROUPS = 64  # groups whose maxima bound the k-th largest value
_BLOCK = 64  # values a block of the two-level cumulative sum
_SORTED = 1024  # weights that are quicker sorted than put into buckets
_BUCKET_SHIFT = 17  # keeps 6 bits of a float's mantissa: 64 buckets for a factor of 2


@dataclass(frozen=True)
class Candidates:
    """Tokens that may be drawn.

    Attributes:
        ids: ascending, int64; None where they are the whole vocabulary.
        weights: float32, proportional to the probabilities; the largest is 1, and one that may
            not be drawn has 0.
    """

    ids: NDArray[np.int64] | None
    weights: NDArray[np.float32]

    def keep(self, mask: NDArray[np.bool_]) -> Candidates:
        """The same, with weight 0 for those that the mask does not mark."""
        return Candidates(self.ids, self.weights * mask)

    def only(self, mask: NDArray[np.bool_]) -> Candidates:
        """The marked ones alone: dearer than `keep`, but what follows is cheaper if few remain."""
        marked = np.flatnonzero(mask)
        ids = marked if self.ids is None else self.ids[marked]
        return Candidates(ids, self.weights[marked])

    def draw(self, uniform: float) -> int:
        """The token at `uniform` (in [0, 1)) of the cumulative distribution, in order of id."""
        index = _inverse_cumulative(self.weights, uniform)
        return index if self.ids is None else int(self.ids[index])


def warp(scores: NDArray[np.float32], sampling: Sampling) -> Candidates:
    """Applies temperature, top-k, top-p and min-p, in this order, to finite scores `[vocab]`.

    A score may also be -inf: such a token is never drawn.
    """
    # The largest becomes 0 before it is divided: what overflows is -inf, of weight 0.
    with np.errstate(over="ignore"):
        scaled = (scores - scores.max()) / np.float32(sampling.temperature)
    if 0 < sampling.top_k < scaled.size:
        ids = largest(scaled, sampling.top_k)
        candidates = Candidates(ids, np.exp(scaled[ids]))
    else:
        candidates = Candidates(None, np.exp(scaled))
    if sampling.top_p < 1:
        candidates = _nucleus(candidates, sampling.top_p)
    if sampling.min_p > 0:
        candidates = candidates.keep(candidates.weights >= np.float32(sampling.min_p))
    return candidates


def largest(values: NDArray[np.float32], count: int) -> NDArray[np.int64]:
    """Ascending indices of the `count` largest values, and of all that equal the last of them."""
    if count >= values.size:
        return np.arange(values.size)
    # The count-th largest of the maxima of disjoint groups cannot exceed the count-th largest
    # value: what lies below it need not be looked at again.
    groups = values[: values.size // _GROUPS * _GROUPS].reshape(_GROUPS, -1).max(axis=0)
    if count > groups.size:
        return np.flatnonzero(values >= _kth_largest(values, count))
    indices = np.flatnonzero(values >= _kth_largest(groups, count))
    near = values[indices]
    return indices[near >= _kth_largest(near, count)]


def _kth_largest(values: NDArray[np.float32], k: int) -> np.float32:
    kth: np.float32 = np.partition(values, values.size - k)[values.size - k]
    return kth


def _nucleus(candidates: Candidates, top_p: float) -> Candidates:
    """The fewest candidates, largest weight first, whose share of the sum reaches `top_p`.

    Holtzman et al. 2020, "The curious case of neural text degeneration", section 3.1. Of equal
    weights at the edge the lower ids stay.
    """
    total = float(candidates.weights.sum(dtype=np.float64))
    # All weights below this, together, are less than the share that is dropped.
    negligible = (1 - top_p) * total / candidates.weights.size
    candidates = candidates.only(candidates.weights >= np.float32(negligible))
    edge, edge_count = _nucleus_edge(candidates.weights, top_p * total)
    inside = candidates.weights >= edge
    at_edge = np.flatnonzero(candidates.weights == edge)
    inside[at_edge[edge_count:]] = False
    return candidates.keep(inside)


def _nucleus_edge(weights: NDArray[np.float32], needed: float) -> tuple[np.float32, int]:
    """The smallest weight that it takes, largest first, to sum up to `needed`, and how many."""
    near, above = (weights, 0.0) if weights.size <= _SORTED else _bucket_of_edge(weights, needed)
    ordered = np.sort(near)[::-1]
    cumulative = above + np.cumsum(ordered, dtype=np.float64)
    last = min(int(np.searchsorted(cumulative, needed)), ordered.size - 1)
    edge: np.float32 = ordered[last]
    return edge, int(np.count_nonzero(ordered[: last + 1] == edge))


def _bucket_of_edge(
    weights: NDArray[np.float32], needed: float
) -> tuple[NDArray[np.float32], float]:
    """The weights among which the sum, largest first, reaches `needed`; and the sum above them.

    Instead of sorting them all. The bits of positive floats, read as integers, are in the order
    of the floats: the leading ones serve as the number of a bucket.
    """
    buckets = weights.view(np.int32) >> _BUCKET_SHIFT
    largest_bucket = int(buckets.max())
    buckets = largest_bucket - buckets
    masses = np.cumsum(np.bincount(buckets, weights))
    bucket = min(int(np.searchsorted(masses, needed)), masses.size - 1)
    return weights[buckets == bucket], float(masses[bucket - 1]) if bucket else 0.0


def _inverse_cumulative(weights: NDArray[np.float32], uniform: float) -> int:
    """The first index whose cumulative weight exceeds `uniform` x the sum of all.

    Sums blocks first and then looks into one: a running sum of the whole vocabulary would cost
    ten times as much.
    """
    whole = weights.size // _BLOCK * _BLOCK
    blocks = weights[:whole].reshape(-1, _BLOCK).sum(axis=1, dtype=np.float64)
    sums = np.cumsum(np.append(blocks, weights[whole:].sum(dtype=np.float64)))
    wanted = uniform * float(sums[-1])
    block = _first_above(sums, wanted)
    before = float(sums[block - 1]) if block else 0.0
    inside = np.cumsum(weights[block * _BLOCK : (block + 1) * _BLOCK], dtype=np.float64)
    return block * _BLOCK + _first_above(inside, wanted - before)


def _first_above(sums: NDArray[np.float64], wanted: float) -> int:
    """The first index whose running sum exceeds `wanted`, or the last sum where none does.

    Rounding can bring `wanted` up to the sum of all; the index is then still one of a weight
    above 0, because only such a one raises the sum.
    """
    below_all = np.nextafter(sums[-1], 0)
    return int(np.searchsorted(sums, min(wanted, below_all), side="right"))
