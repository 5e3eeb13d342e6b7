"""What a server said, in a form that can be compared."""

from __future__ import annotations

import math
from dataclasses import dataclass

from client.results import FinishReason

_NEAR = 1e-6  # of the vector's length


@dataclass(frozen=True)
class Vectors:
    """One vector for each text."""

    values: tuple[tuple[float, ...], ...]

    def agrees(self, whole: Answer) -> bool:
        """Whether these are the vectors of a complete answer."""
        if not isinstance(whole, Vectors) or len(self.values) != len(whole.values):
            return False
        return all(map(_near, self.values, whole.values))


@dataclass(frozen=True)
class Written:
    """A completion, as far as it came; `finish_reason` is None where its end did not."""

    text: str
    token_ids: tuple[int, ...]
    finish_reason: FinishReason | None

    def agrees(self, whole: Answer) -> bool:
        """Whether this is a complete answer, to the byte, or begins like it."""
        if not isinstance(whole, Written):
            return False
        if self.finish_reason is not None:
            return self == whole
        begins = whole.token_ids[: len(self.token_ids)] == self.token_ids
        return begins and whole.text.startswith(self.text)


Answer = Vectors | Written


def _near(vector: tuple[float, ...], whole: tuple[float, ...]) -> bool:
    if len(vector) != len(whole):
        return False
    return math.dist(vector, whole) <= _NEAR * math.hypot(*whole)
