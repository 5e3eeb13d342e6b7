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
        if self.most == math.inf:
            raise InvalidInput(f"{field} is {value:g}; it must be at least {self.least:g}")
        least = f"above {self.least:g} and at most" if self.above else f"from {self.least:g} to"
        raise InvalidInput(f"{field} is {value:g}; it must be {least} {self.most:g}")


def check_ids(field: str, ids: Sequence[int], vocabulary_size: int) -> None:
    """Raises `InvalidInput`, naming the first, where an id is none of the vocabulary."""
    if not ids or max(ids) < vocabulary_size:
        return
    index = next(index for index, token_id in enumerate(ids) if token_id >= vocabulary_size)
    raise InvalidInput(
        f"{field}[{index}] is {ids[index]}; the vocabulary ends at {vocabulary_size - 1}"
    )
