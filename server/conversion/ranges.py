"""Ranges of numbers that a request may hold."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from server.errors import InvalidInput


@dataclass(frozen=True)
class Range:
    """From `least` to `most`, both included unless `above`: then `least` itself is outside."""

    least: float
    most: float
    above: bool = False

    def __contains__(self, value: float) -> bool:
        return (self.least < value if self.above else self.least <= value) and value <= self.most

    def check(self, field: str, value: float) -> None:
        """Raises `InvalidInput`, naming the field, for a value outside; NaN is outside of all."""
        if value in self:
            return
        given, least = _spell(value), _spell(self.least)
        if self.most == math.inf:
            raise InvalidInput(f"{field} is {given}; it must be at least {least}")
        between = f"above {least} and at most" if self.above else f"from {least} to"
        raise InvalidInput(f"{field} is {given}; it must be {between} {_spell(self.most)}")


def _spell(number: float) -> str:
    """An integer with all its digits, any other number with the six that tell what it is."""
    return str(number) if isinstance(number, int) else f"{number:g}"


def check_ids(field: str, ids: Sequence[int], vocabulary_size: int) -> None:
    """Raises `InvalidInput`, naming the first, where an id is none of the vocabulary."""
    if not ids or max(ids) < vocabulary_size:
        return
    index = next(index for index, token_id in enumerate(ids) if token_id >= vocabulary_size)
    raise InvalidInput(
        f"{field}[{index}] is {ids[index]}; the vocabulary ends at {vocabulary_size - 1}"
    )
