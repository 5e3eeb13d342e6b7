"""The n-grams of one text, so that none comes twice."""

from __future__ import annotations

import copy
from collections.abc import Sequence


class Ngrams:
    """Which tokens have followed each run of `size` - 1 tokens.

    A token costs the same wherever it is added; a fork copies all that there is.
    """

    def __init__(self, size: int, token_ids: Sequence[int]) -> None:
        """`size` is at least 1; `token_ids` are the text so far."""
        self._before = size - 1
        self._latest: tuple[int, ...] = ()
        self._followers: dict[tuple[int, ...], tuple[int, ...]] = {}
        for token_id in token_ids:
            self.add(token_id)

    @property
    def repeating(self) -> tuple[int, ...]:
        """The tokens with which the text would end in `size` tokens that it has already."""
        return self._followers.get(self._latest, ())

    def add(self, token_id: int) -> None:
        """Adds the next token of the text."""
        if len(self._latest) == self._before:
            self._followers[self._latest] = (*self.repeating, token_id)
        longer = (*self._latest, token_id)
        self._latest = longer[max(0, len(longer) - self._before) :]

    def fork(self) -> Ngrams:
        """One that goes on from here by itself."""
        other = copy.copy(self)
        other._followers = dict(self._followers)
        return other
