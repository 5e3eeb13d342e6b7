"""Which words are learned from, and which are held out to measure with."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from examples.g2p.dictionary import Entry

_SEED = "g2p"
_TEST_SHARE = 0.05
_VALIDATION_SHARE = 0.01
_ENDINGS = (
    *("'s", "s'", "'", "s", "es", "ies", "d", "ed", "ied", "ing", "ings", "in'"),
    *("e", "er", "ers", "or", "ors", "est", "y", "ly", "ally", "ness", "less", "ful", "ment"),
    *(
        "able",
        "ably",
        "al",
        "ance",
        "ence",
        "ship",
        "ation",
        "ations",
        "ion",
        "ions",
        "ism",
        "ist",
        "ists",
        "ity",
        "ize",
        "ized",
    ),
)
_SHORTEST_STEM = 3


@dataclass(frozen=True)
class Split:
    """The dictionary in three parts; a word is in one of them, with all its pronunciations."""

    training: tuple[Entry, ...]
    validation: tuple[Entry, ...]
    test: tuple[Entry, ...]


def split(entries: Iterable[Entry]) -> Split:
    """Divides the entries.

    The part of a word depends on the word alone: it stays there whatever a training is seeded with,
    and when the dictionary grows.
    """
    parts: tuple[list[Entry], ...] = ([], [], [])
    for entry in entries:
        place = _place(entry.word)
        if place < _TEST_SHARE:
            parts[2].append(entry)
        elif place < _TEST_SHARE + _VALIDATION_SHARE:
            parts[1].append(entry)
        else:
            parts[0].append(entry)
    return Split(*map(tuple, parts))


def with_relatives(entries: Sequence[Entry], training: Iterable[Entry]) -> list[bool]:
    """For each entry, whether a training word has the same stem.

    A stem is a word without one of the common endings, or the whole word. Some words are called
    related by chance (`caring` and `cars`); those that are called unrelated hardly ever are related
    by inflection.
    """
    known = {stem for entry in training for stem in _stems(entry.word)}
    return [not known.isdisjoint(_stems(entry.word)) for entry in entries]


def _place(word: str) -> float:
    """A number in [0, 1) that is drawn by the word."""
    digest = hashlib.sha256(f"{_SEED} {word}".encode()).digest()
    return int.from_bytes(digest[:8], "big") / 2**64


def _stems(word: str) -> set[str]:
    stems = {word.removesuffix(ending) for ending in _ENDINGS}
    return {word, *(stem for stem in stems if len(stem) >= _SHORTEST_STEM)}
