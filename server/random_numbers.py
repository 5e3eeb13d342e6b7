"""Random numbers that depend on what they are for, and on nothing that was drawn before."""

from __future__ import annotations

from numpy.random import Philox

_MANTISSA_BITS = 53


def uniform(seed: int, completion: int, position: int) -> float:
    """The number in [0, 1) that chooses the token at a position of one completion of a request.

    The counter-based generator Philox-4x64-10 (Salmon et al. 2011, "Parallel random numbers: as
    easy as 1, 2, 3"), keyed by the seed, at the counter made of completion and position. All three
    are unsigned 64-bit integers.
    """
    counter = (completion << 64) | position
    bits = int(Philox(key=seed, counter=counter).random_raw())
    return (bits >> (64 - _MANTISSA_BITS)) * 2.0**-_MANTISSA_BITS
